#include "reference/execute/carry.h"

#include <algorithm>
#include <utility>

#include "reference/support/interrupt.h"

namespace ringside {
namespace {

constexpr int kStepsOfCell = 256;  // what moving one head of one row costs, in simple operations

// visit(from row, from head, to row, to head) for every row and head of a transfer, in the
// coordinates of the two buffers.
template <typename Visit>
void for_each_cell(const Plan& plan, int step, Operand operand, const Transfer& t, Visit visit) {
  const Range from = resident_before(plan, t.from, step, operand).heads;
  const Range to = resident_before(plan, t.to, step + 1, operand).heads;
  for (int i = 0; i < t.sent.rows; ++i) {
    check_interrupt(int64_t{kStepsOfCell} * t.sent.heads.size());
    for (int head = t.sent.heads.begin; head < t.sent.heads.end; ++head)
      visit(t.sent.row + i, head - from.begin, t.landing_row(i), head - to.begin);
  }
}

PerRank allocate(const Plan& plan, int step, Operand operand, int dim, double fill) {
  PerRank fresh;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Buffer& buffer = resident_before(plan, rank, step, operand);
    fresh.emplace_back(plan.rows(buffer), buffer.heads.size(), dim, fill);
  }
  return fresh;
}

}  // namespace

PerRank carry(const Plan& plan, int step, Operand operand, PerRank resident) {
  const int dim = resident.empty() ? 0 : resident[0].dim;
  PerRank next = allocate(plan, step + 1, operand, dim, kPoison);
  for (const Transfer& t : transfers(plan, step, operand))
    for_each_cell(plan, step, operand, t, [&](int row, int head, int to_row, int to_head) {
      const double* x = resident[t.from].at(row, head);
      std::copy(x, x + dim, next[t.to].at(to_row, to_head));
    });
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (!is_replaced(plan, rank, step, operand)) next[rank] = std::move(resident[rank]);
  return next;
}

PerRank carry_back(const Plan& plan, int step, Operand operand, PerRank gradients) {
  const int dim = gradients.empty() ? 0 : gradients[0].dim;
  PerRank before = allocate(plan, step, operand, dim, 0.0);
  for (const Transfer& t : transfers(plan, step, operand))
    for_each_cell(plan, step, operand, t, [&](int row, int head, int to_row, int to_head) {
      const double* g = gradients[t.to].at(to_row, to_head);
      double* sum = before[t.from].at(row, head);
      for (int d = 0; d < dim; ++d) sum[d] += g[d];
    });
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (!is_replaced(plan, rank, step, operand)) before[rank] = std::move(gradients[rank]);
  return before;
}

void carry_back_results(const Plan& plan, int step, const std::vector<Partial>& results,
                        std::vector<Partial>& before) {
  for (const Transfer& t : transfers(plan, step, Operand::q))
    for_each_cell(plan, step, Operand::q, t, [&](int row, int head, int to_row, int to_head) {
      before[t.from].merge(row, head, results[t.to].out.at(to_row, to_head),
                           *results[t.to].lse.at(to_row, to_head));
    });
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (!is_replaced(plan, rank, step, Operand::q))
      for (int row = 0; row < results[rank].out.rows; ++row)
        for (int head = 0; head < results[rank].out.heads; ++head)
          before[rank].merge(row, head, results[rank].out.at(row, head),
                             *results[rank].lse.at(row, head));
}

PerRank shard(const PackedLayout& layout, const std::vector<Shard>& shards, const TensorView& x) {
  PerRank parts;
  for (const Shard& owned : shards) {
    Tensor& part = parts.emplace_back(num_rows(owned), x.heads, x.dim, kPoison);
    for (const Segment& s : owned) {
      check_interrupt(int64_t{s.len} * x.heads * x.dim);
      for (int i = 0; i < s.len; ++i) {
        const double* row = x.at(layout.row_begin(s.seq) + s.position(i), 0);
        std::copy(row, row + x.heads * x.dim, part.at(s.row + i, 0));
      }
    }
  }
  return parts;
}

Tensor unshard(const PackedLayout& layout, const std::vector<Shard>& shards, const PerRank& x) {
  Tensor whole(layout.num_rows(), x[0].heads, x[0].dim, kPoison);
  for (size_t rank = 0; rank < shards.size(); ++rank)
    for (const Segment& s : shards[rank])
      for (int i = 0; i < s.len; ++i) {
        const double* row = x[rank].at(s.row + i, 0);
        std::copy(row, row + whole.heads * whole.dim,
                  whole.at(layout.row_begin(s.seq) + s.position(i), 0));
      }
  return whole;
}

}  // namespace ringside
