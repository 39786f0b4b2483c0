// Random cases of ranks that have arrays of their own, and those arrays on the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "optimized/program/test_device_array.h"
#include "optimized/program/test_random_capacity.h"
#include "optimized/ranks/program.h"
#include "reference/test_support/test_random_case.h"

namespace ringside::testing {

inline std::optional<Capacity> random_capacity(Random& random, const Problem& problem,
                                               const Plan& plan) {
  return random.one_in(4) ? std::nullopt : room_for(random, plan, problem, 9);
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
  RandomCase c;
  KeepKv keep;
  bool deterministic;

  RanksCase(Random& random, const TypeInfo& type)
      : problem(random_problem(random)),
        plan(random_plan(random, problem)),
        capacity(random_capacity(random, problem, plan)),
        c(random, problem),
        keep(random.coin() ? KeepKv::yes : KeepKv::no),
        deterministic(random.coin()) {
    if (type.type != ElementType::float32) for_tensor_cores(random);
    round_to(type);
  }

  // Of a plan at hand, without options.
  RanksCase(Random& random, const TypeInfo& type, const Problem& of, const Plan& by, int dim)
      : problem(of), plan(by), c(random, problem), keep(KeepKv::no), deterministic(false) {
    AttentionOptions plain;
    plain.softmax_scale = c.options.softmax_scale;
    c.options = plain;
    draw(random, dim, dim);
    round_to(type);
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
  void draw(Random& random, int qk, int v) {
    c.q = random_tensor(random, problem.layout_q, problem.num_heads, qk);
    c.k = random_tensor(random, problem.layout_k, problem.num_kv_heads, qk);
    c.v = random_tensor(random, problem.layout_k, problem.num_kv_heads, v);
    c.dout = random_tensor(random, problem.layout_q, problem.num_heads, v);
  }
  void round_to(const TypeInfo& type) {
    for (Tensor* x : {&c.q, &c.k, &c.v, &c.dout})
      for (double& value : x->data) value = rounded(value, type.type);
  }
  void for_tensor_cores(Random& random) {
    const std::vector<int> dims{8, 13, 64, 96, 128, 192};
    const int qk = random.choice(dims), v = random.choice(dims);
    draw(random, qk, v);
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
  int64_t kept_from = 0;  // a byte of it, at which a call is told that it begins

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

  std::byte* kept_place() const {
    return kept_from < 0 ? nullptr : static_cast<std::byte*>(kept.data()) + kept_from;
  }
};

}  // namespace ringside::testing
