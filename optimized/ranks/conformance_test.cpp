// Ranks of one process, each with arrays of its own, against the CPU: random plans, and capacities
// whose lengths come on the device. Every array lies between canaries, rows of nobody and
// workspaces hold NaN. Messages between ranks of a process are copies. Skips without a device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "optimized/program/test_device_array.h"
#include "optimized/ranks/program.h"
#include "reference/execute/execute.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::expect_close;
using testing::Guarded;
using testing::OnDevice;
using testing::Random;
using testing::TypeInfo;

bool has_device() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

// Those of a process by itself, whose words nobody else opens.
class LinksOfOne {
 public:
  LinksOfOne() : path_("/dev/shm/ringside_test_" + std::to_string(getpid())), links(0, 1, path_) {
    unlink(path_.c_str());
  }

 private:
  std::string path_;

 public:
  Links links;
};

std::optional<Capacity> random_capacity(Random& random, const Problem& problem, const Plan& plan) {
  if (!find_partition(plan.partition).rule.is_closed_form() || plan.comm == "fetch") return {};
  if (random.one_in(4)) return {};
  Capacity room;
  room.partition = plan.partition, room.comm.name = plan.comm, room.cp_size = plan.cp_size();
  if (plan.comm == "a2a+p2p") room.comm.a2a_size = room.cp_size % 2 == 0 ? 2 : 1;
  room.mask = problem.mask;
  room.num_heads = problem.num_heads, room.num_kv_heads = problem.num_kv_heads;
  room.max_sequences = problem.layout_q.batch() + 1 + random.integer(0, 3);
  room.max_rows_q = problem.layout_q.num_rows() + random.integer(0, 9);
  room.max_rows_k = problem.layout_k.num_rows() + random.integer(0, 9);
  return room;
}

// A layout in device memory; of more rows than it fills.
struct LayoutOnDevice {
  DeviceTables tables;
  TableOf<int32_t> valid;
  TableOf<int64_t> padded;
  int rows;

  LayoutOnDevice(const PackedLayout& layout, int num_rows) : rows(num_rows) {
    const auto& p = layout.cu_seqlens_padded();
    valid = tables.add(layout.cu_seqlens());
    padded = tables.add(std::vector<int64_t>(p.begin(), p.end()));
    tables.upload();
  }
  DeviceLayout layout() const {
    return {{tables.at(valid), valid.size, false}, {tables.at(padded), padded.size, true}, rows};
  }
};

struct RanksCase {
  Problem problem;
  Plan plan;  // that knows the lengths
  std::optional<Capacity> capacity;
  testing::RandomCase c;
  KeepKv keep;
  bool deterministic;

  RanksCase(Random& random, const TypeInfo& type)
      : problem(testing::random_problem(random)),
        plan(testing::random_plan(random, problem)),
        capacity(random_capacity(random, problem, plan)),
        c(random, problem),
        keep(random.coin() ? KeepKv::yes : KeepKv::no),
        deterministic(random.coin()) {
    if (type.type != ElementType::float32) for_tensor_cores(random);
    for (Tensor* x : {&c.q, &c.k, &c.v, &c.dout})
      for (double& value : x->data) value = testing::rounded(value, type.type);
  }

  int rows(int rank, Operand side) const {
    const bool is_q = side == Operand::q;
    if (!capacity) return plan.rows(is_q ? plan.home_q[rank] : plan.home_kv[rank]);
    return rank_rows(*capacity, is_q ? capacity->max_rows_q : capacity->max_rows_k);
  }
  const Shard& shard(int rank, Operand side) const {
    return plan.shard(side == Operand::q ? plan.home_q[rank] : plan.home_kv[rank]);
  }
  // visit(row of the rank's array, row of the global one)
  template <typename Visit>
  void for_each_row(int rank, Operand side, Visit visit) const {
    const PackedLayout& layout = side == Operand::q ? problem.layout_q : problem.layout_k;
    for (const Segment& s : shard(rank, side))
      for (int i = 0; i < s.len; ++i) visit(s.row + i, layout.row_begin(s.seq) + s.position(i));
  }
  // A rank's rows of a global array; `otherwise` in rows of nobody.
  Tensor part(const Tensor& x, int rank, Operand side, double otherwise) const {
    Tensor own(rows(rank, side), x.heads, x.dim, otherwise);
    for_each_row(rank, side, [&](int row, int global) {
      std::copy_n(x.at(global, 0), x.heads * x.dim, own.at(row, 0));
    });
    return own;
  }

 private:
  void for_tensor_cores(Random& random) {
    const std::vector<int> dims{8, 13, 64, 96, 128, 192};
    const int qk = random.choice(dims), v = random.choice(dims);
    c.q = random_tensor(random, problem.layout_q, problem.num_heads, qk);
    c.k = random_tensor(random, problem.layout_k, problem.num_kv_heads, qk);
    c.v = random_tensor(random, problem.layout_k, problem.num_kv_heads, v);
    c.dout = random_tensor(random, problem.layout_q, problem.num_heads, v);
    if (random.one_in(4)) return;
    c.options.softcap = 0, c.options.dropout = {};
    c.options.alibi_slopes.clear();
  }
};

// One rank's arrays.
struct ArraysOfRank {
  OnDevice q, k, v, dout, out, lse, dq, dk, dv;
  Guarded dsink;
  DeviceMemory kept;

  ArraysOfRank(const RanksCase& x, int rank, ElementType type, int64_t kept_bytes)
      : q(x.part(x.c.q, rank, Operand::q, NAN), type),
        k(x.part(x.c.k, rank, Operand::kv, NAN), type),
        v(x.part(x.c.v, rank, Operand::kv, NAN), type),
        dout(x.part(x.c.dout, rank, Operand::q, NAN), type),
        out(q.rows, q.heads, v.dim, type),
        lse(q.rows, q.heads, 1, ElementType::float32),
        dq(q.rows, q.heads, q.dim, type),
        dk(k.rows, k.heads, k.dim, type),
        dv(v.rows, v.heads, v.dim, type),
        dsink(x.c.options.sinks.size(), ElementType::float32),
        kept(kept_bytes) {}
};

Hosting all_in_one(int ranks) {
  Hosting hosting{{{}}, 0};
  for (int rank = 0; rank < ranks; ++rank) hosting.processes[0].push_back(rank);
  return hosting;
}

class RanksRun {
 public:
  RanksRun(const RanksCase& ranks_case, const TypeInfo& type)
      : x_(ranks_case), type_(type), program_(program_of(ranks_case, type)) {
    links_.links.reserve(program_.workspace_bytes());
    program_.attach(links_.links, 1);
    for (int rank = 0; rank < x_.plan.cp_size(); ++rank)
      ranks_.emplace_back(x_, rank, type.type, program_.kept_bytes()[rank]);
    if (x_.capacity) set_lengths();
  }

  const char* family() const { return program_.family(); }

  void expect_forward() {
    std::vector<RankForwardCall> calls;
    for (const ArraysOfRank& a : ranks_)
      calls.push_back(
          {a.q.array(), a.k.array(), a.v.array(), a.out.array(), a.lse.array(), a.kept.data()});
    RankCallOptions of_call = options();
    of_call.max_logit = static_cast<float*>(max_logit_.data());
    program_.forward(calls, of_call, links_.links, nullptr);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    const AttentionOutput want = attention(x_.plan, x_.c.inputs());
    out_ = want.out, lse_ = want.lse;
    for (int rank = 0; rank < x_.plan.cp_size(); ++rank) {
      const Tensor out = ranks_[rank].out.read(), lse = ranks_[rank].lse.read();
      expect_close("out", type_, x_.part(want.out, rank, Operand::q, 0).data, out.data);
      expect_close("lse", type_, x_.part(want.lse, rank, Operand::q, -INFINITY).data, lse.data);
      x_.for_each_row(rank, Operand::q, [&](int row, int global) {  // backward is of these
        std::copy_n(out.at(row, 0), out.heads * out.dim, out_.at(global, 0));
        std::copy_n(lse.at(row, 0), lse.heads, lse_.at(global, 0));
      });
    }
    expect_close("max_logit", type_, want.max_logit, max_logit_.read());
  }

  void expect_backward() {
    std::vector<RankBackwardCall> calls;
    for (const ArraysOfRank& a : ranks_)
      calls.push_back({a.dout.array(), a.q.array(), a.k.array(), a.v.array(), a.out.array(),
                       a.lse.array(), a.dq.array(), a.dk.array(), a.dv.array(),
                       static_cast<float*>(a.dsink.data()), a.kept.data()});
    program_.backward(calls, options(), links_.links, nullptr);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    const AttentionGradients want =
        attention_backward(x_.plan, x_.c.inputs(), x_.c.dout, {out_, lse_, {}});
    std::vector<double> dsink(want.dsink.size(), 0);
    for (int rank = 0; rank < x_.plan.cp_size(); ++rank) {
      const ArraysOfRank& a = ranks_[rank];
      expect_close("dq", type_, x_.part(want.dq, rank, Operand::q, 0).data, a.dq.read().data);
      expect_close("dk", type_, x_.part(want.dk, rank, Operand::kv, 0).data, a.dk.read().data);
      expect_close("dv", type_, x_.part(want.dv, rank, Operand::kv, 0).data, a.dv.read().data);
      const std::vector<double> own = a.dsink.read();
      for (size_t head = 0; head < dsink.size(); ++head) dsink[head] += own[head];
    }
    expect_close("dsink", type_, want.dsink, dsink);
  }

  // What an empty batch has, whatever the arrays hold.
  void expect_nothing() {
    std::vector<RankForwardCall> calls;
    for (const ArraysOfRank& a : ranks_)
      calls.push_back(
          {a.q.array(), a.k.array(), a.v.array(), a.out.array(), a.lse.array(), a.kept.data()});
    program_.forward(calls, options(), links_.links, nullptr);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    for (const ArraysOfRank& a : ranks_) {
      for (const double value : a.out.read().data) ASSERT_EQ(value, 0);
      for (const double value : a.lse.read().data) ASSERT_EQ(value, -INFINITY);
    }
  }

  void set_lengths_that_do_not_fit() const {
    const std::vector<int32_t> valid{0, x_.capacity->max_rows_q + 1};
    set(PackedLayout(valid, valid), PackedLayout(valid, valid));
    EXPECT_FALSE(program_.lengths_fitted(nullptr));
    EXPECT_TRUE(program_.lengths_fitted(nullptr)) << "asked again";
  }
  void set_lengths() const {
    set(x_.problem.layout_q, x_.problem.layout_k);
    EXPECT_TRUE(program_.lengths_fitted(nullptr));
  }

 private:
  static RankProgram program_of(const RanksCase& x, const TypeInfo& type) {
    const bool score_options =
        x.c.options.softcap != 0 || !x.c.options.alibi_slopes.empty() || x.c.options.dropout.p != 0;
    const ProgramOptions options{x.c.q.dim,
                                 x.c.v.dim,
                                 type.type,
                                 score_options,
                                 static_cast<float>(x.c.options.softmax_scale),
                                 Poison::on,
                                 !x.c.options.sinks.empty()};
    const Hosting hosting = all_in_one(x.plan.cp_size());
    return x.capacity ? RankProgram(*x.capacity, hosting, options, x.keep)
                      : RankProgram(x.plan, hosting, options, x.keep);
  }

  void set(const PackedLayout& q, const PackedLayout& k) const {
    const LayoutOnDevice of_q(q, x_.capacity->max_rows_q), of_k(k, x_.capacity->max_rows_k);
    program_.set_lengths(of_q.layout(), of_k.layout(), nullptr);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
  }

  RankCallOptions options() const {
    const AttentionOptions& o = x_.c.options;
    RankCallOptions of_call;
    if (!o.sinks.empty()) of_call.sinks = static_cast<float*>(sinks_.data());
    of_call.options = {static_cast<float>(o.softcap),
                       o.alibi_slopes.empty() ? nullptr : static_cast<float*>(slopes_.data()),
                       o.dropout};
    of_call.deterministic = x_.deterministic;
    return of_call;
  }

  const RanksCase& x_;
  TypeInfo type_;
  RankProgram program_;
  LinksOfOne links_;
  std::vector<ArraysOfRank> ranks_;
  Guarded max_logit_{static_cast<size_t>(x_.c.q.heads), ElementType::float32};
  Guarded sinks_{x_.c.options.sinks, ElementType::float32};
  Guarded slopes_{x_.c.options.alibi_slopes, ElementType::float32};
  Tensor out_, lse_;  // as the ranks found them
};

struct Seed {
  TypeInfo type;
  unsigned seed;
};
void PrintTo(const Seed& s, std::ostream* out) { *out << s.type.name << ", seed " << s.seed; }

class RanksOfOneProcess : public ::testing::TestWithParam<Seed> {};

TEST_P(RanksOfOneProcess, AgreeWithTheCpu) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const auto& [type, seed] = GetParam();
  Random random(500 + seed);
  const int cases = std::getenv("RINGSIDE_FEW_CASES") != nullptr ? 4 : 12;  // under sanitizers
  for (int i = 0; i < cases; ++i) {
    const RanksCase ranks_case(random, type);
    RanksRun run(ranks_case, type);
    const Plan& plan = ranks_case.plan;
    SCOPED_TRACE("case " + std::to_string(i) + " by " + run.family() + ": " + plan.partition +
                 " over " + plan.comm + ", cp_size " + std::to_string(plan.cp_size()) +
                 (ranks_case.keep == KeepKv::yes ? ", keys kept" : "") +
                 (ranks_case.capacity ? ", lengths on the device" : ""));
    if (ranks_case.capacity) {
      run.set_lengths_that_do_not_fit();
      run.expect_nothing();
      run.set_lengths();
    }
    if (!HasFailure()) run.expect_forward();
    if (!HasFailure()) run.expect_backward();
    if (HasFailure()) return;
  }
}

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  for (const TypeInfo& type : {testing::kFloat32, testing::kFloat16, testing::kBFloat16})
    for (unsigned seed = 0; seed < 4; ++seed) all.push_back({type, seed});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Random, RanksOfOneProcess, ::testing::ValuesIn(seeds()));

TEST(RankProgram, OfAPlanKnowsItsLengths) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const Problem problem{{{0, 3}, {0, 3}}, {{0, 3}, {0, 3}}, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  const RankProgram program(plan, all_in_one(2), {8, 8, ElementType::float32});
  EXPECT_THROW(program.set_lengths({}, {}, nullptr), InvalidArgument);
  EXPECT_THROW(program.lengths_fitted(nullptr), InvalidArgument);
}

}  // namespace
}  // namespace ringside
