// Random problems for the C++ tests: layouts with padding and empty sequences, masks, heads,
// arrays. Most have pairs to compute on several ranks; random_case_test.cpp says how many.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "reference/attention/oracle.h"
#include "reference/execute/execute.h"
#include "reference/partition/partition.h"
#include "reference/plan/plan.h"
#include "reference/test_support/test_seed.h"
#include "reference/transport/transport.h"

namespace ringside::testing {

class Random {
 public:
  explicit Random(unsigned seed, uint32_t run = seed_of_run())
      : number_(1000 * seed), run_(run), engine_(engine(seed, run)) {}
  // Every kFixedShare-th case is the same in every run, whatever was drawn before.
  void begin_case() { engine_ = engine(number_++, run_); }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool coin() { return integer(0, 1) == 1; }
  bool one_in(int n) { return integer(1, n) == 1; }
  double normal() { return std::normal_distribution<double>()(engine_); }
  template <typename T>
  const T& choice(const std::vector<T>& from) {
    return from[integer(0, static_cast<int>(from.size()) - 1)];
  }

 private:
  unsigned number_;
  uint32_t run_;
  std::mt19937 engine_;
};

inline PackedLayout random_layout(Random& random, int batch) {
  std::vector<int32_t> valid{0}, padded{0};
  for (int s = 0; s < batch; ++s) {
    const int length = random.coin() ? random.integer(0, 8) : random.integer(0, 40);
    const int padding = random.coin() ? 0 : random.integer(0, 9);
    valid.push_back(valid.back() + length);
    padded.push_back(padded.back() + length + padding);
  }
  return {valid, padded};
}

inline Mask random_mask(Random& random) {
  const auto bound = [&] { return random.coin() ? kUnbounded : random.integer(0, 9); };
  return {bound(), bound(), random.coin() ? 0 : random.integer(1, 9),
          random.coin() ? Align::top_left : Align::bottom_right};
}

inline Problem random_problem(Random& random) {
  random.begin_case();
  Problem problem;
  const int batch = random.one_in(20) ? 0 : random.integer(1, 5);
  problem.layout_q = random_layout(random, batch);
  problem.layout_k = random.coin() ? problem.layout_q : random_layout(random, batch);
  problem.mask = random_mask(random);
  problem.num_kv_heads = random.integer(1, 3);
  problem.num_heads = problem.num_kv_heads * random.integer(1, 3);
  return problem;
}

inline const NamedPartition& random_partition(Random& random) {
  return partitions()[random.integer(0, static_cast<int>(partitions().size()) - 1)];
}

inline const NamedPartition& random_closed_form(Random& random) {
  for (;;)
    if (const NamedPartition& named = random_partition(random); named.rule.is_closed_form())
      return named;
}

// What `rank` owns of a layout, of any partition, under the causal mask.
inline Shard shard_of(const NamedPartition& partition, const PackedLayout& layout, int cp_size,
                      int rank) {
  return own_rows(partition, {layout, layout, Mask::causal(), 1, 1}, cp_size).q[rank];
}

inline Transport random_comm(Random& random, int cp_size) {
  std::vector<std::string> names;
  for (const auto& t : transports()) names.push_back(t.name);
  Transport comm{random.choice(names)};
  if (comm.name == "a2a+p2p") {
    std::vector<int> divisors;
    for (int d = 1; d <= cp_size; ++d)
      if (cp_size % d == 0) divisors.push_back(d);
    comm.a2a_size = random.choice(divisors);
  }
  if (comm.name == "fetch" && random.coin()) comm.stages = random.integer(1, 4);
  return comm;
}

inline Plan random_plan(Random& random, const Problem& problem) {
  const int cp_size = random.one_in(10) ? 1 : random.integer(2, 6);
  const Transport comm = random_comm(random, cp_size);
  return build_plan(problem, place(problem, random_partition(random).name, cp_size), comm);
}

// Normal values in valid rows, NaN in padding.
inline Tensor random_tensor(Random& random, const PackedLayout& layout, int heads, int dim) {
  Tensor x(layout.num_rows(), heads, dim, kPoison);
  for (int s = 0; s < layout.batch(); ++s)
    for (int pos = 0; pos < layout.len(s); ++pos)
      for (int i = 0; i < heads * dim; ++i) x.at(layout.row_begin(s) + pos, 0)[i] = random.normal();
  return x;
}

inline AttentionOptions random_options(Random& random, const Problem& problem) {
  AttentionOptions options;
  options.softmax_scale = 0.1 + 0.1 * random.integer(0, 9);
  if (random.coin())
    options.softcap = (0.5 + random.integer(0, 3)) * random.choice(std::vector{1, 4});
  if (random.coin()) options.dropout = {0.25 * random.integer(0, 3), 17};
  for (int head = 0; head < problem.num_heads; ++head) {
    options.sinks.push_back(3 * random.normal());
    options.alibi_slopes.push_back(0.25 * random.integer(-1, 2));
  }
  if (random.coin()) options.sinks.clear();
  if (random.coin()) options.alibi_slopes.clear();
  return options;
}

struct RandomCase {
  Problem problem;
  AttentionOptions options;
  Tensor q, k, v, dout;

  RandomCase(Random& random, const Problem& p) : RandomCase(random, p, random_options(random, p)) {}
  RandomCase(Random& random, const Problem& p, const AttentionOptions& o) : problem(p), options(o) {
    const int dim_qk = random.integer(1, 9), dim_v = random.integer(1, 9);
    q = random_tensor(random, p.layout_q, p.num_heads, dim_qk);
    k = random_tensor(random, p.layout_k, p.num_kv_heads, dim_qk);
    v = random_tensor(random, p.layout_k, p.num_kv_heads, dim_v);
    dout = random_tensor(random, p.layout_q, p.num_heads, dim_v);
  }

  AttentionInputs inputs() const { return {q, k, v, options}; }
  oracle::Arrays arrays() const { return {q.data.data(), k.data.data(), v.data.data()}; }
  oracle::Attention definition() const {
    return {problem.layout_q,
            problem.layout_k,
            problem.mask,
            problem.num_heads,
            problem.num_kv_heads,
            q.dim,
            v.dim,
            options};
  }
};

}  // namespace ringside::testing
