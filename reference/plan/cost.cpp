#include "reference/plan/cost.h"

#include <algorithm>

#include "reference/plan/key_owners.h"
#include "reference/plan/residency.h"
#include "reference/plan/tile_counts.h"
#include "reference/plan/tiles.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

int64_t bytes(const Message& m, const ElementSizes& sizes) {
  const int dim =
      m.operand == Operand::q ? sizes.head_dim_qk : sizes.head_dim_qk + sizes.head_dim_v;
  return int64_t{m.rows} * m.heads.size() * dim * sizes.bytes;
}

// The same block on its way home, as a result: out, and one float32 of lse.
int64_t result_bytes(const Message& m, const ElementSizes& sizes) {
  return int64_t{m.rows} * m.heads.size() * (int64_t{sizes.head_dim_v} * sizes.bytes + 4);
}

struct ListCounts {  // of one head
  TileCounts counts;
  RowsOfOwners needed;
};

std::vector<ListCounts> count_lists(const Plan& plan, const KeyOwners& owners,
                                    const BlockSize& block_size) {
  std::vector<ListCounts> lists;
  for (const auto& tiles : plan.tile_lists) {
    const auto seen = seen_keys(plan.problem, tiles);
    lists.push_back({count_tiles(plan.problem, tiles, block_size), owners.count(seen)});
    lists.back().counts.rows_needed = rows_of_all(lists.back().needed);
  }
  return lists;
}

}  // namespace

PlanCost::PlanCost(int cp_size, int num_steps, const BlockSize& block)
    : block_size(block), result_bytes_received(cp_size), result_bytes_sent(cp_size) {
  for (PerStep* field : {&pairs, &blocks, &partial_blocks, &visits, &tiles, &rows_needed,
                         &bytes_received, &bytes_sent, &messages, &rows_q, &rows_kv})
    *field = PerStep(cp_size, num_steps);
}

void PlanCost::add_work(int rank, int step, const TileCounts& counts, int heads) {
  pairs(rank, step) = counts.pairs * heads;
  blocks(rank, step) = counts.blocks * heads;
  partial_blocks(rank, step) = counts.partial_blocks * heads;
  visits(rank, step) = counts.visits * heads;
  tiles(rank, step) = counts.tiles;
  rows_needed(rank, step) = counts.rows_needed;
}

void add_traffic(PlanCost& cost, const Plan& plan, int rank, std::span<const Step> steps,
                 const ElementSizes& sizes) {
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    const Exchange& group = steps[i].before;
    check_interrupt(static_cast<int64_t>(group.sends.size() + group.receives.size()) + 8);
    for (const Message& m : group.sends) {
      if (m.peer == rank) continue;
      cost.bytes_sent(rank, i) += bytes(m, sizes);
      if (m.operand == Operand::q) cost.result_bytes_received[rank] += result_bytes(m, sizes);
    }
    for (const Message& m : group.receives) {
      if (m.peer == rank) continue;
      cost.bytes_received(rank, i) += bytes(m, sizes);
      ++cost.messages(rank, i);
      if (m.operand == Operand::q) cost.result_bytes_sent[rank] += result_bytes(m, sizes);
    }
    cost.rows_q(rank, i) = plan.rows(steps[i].q);
    cost.rows_kv(rank, i) = plan.rows(steps[i].kv);
  }
}

void check_pairs(const Problem& problem) {
  constexpr double kMost = 4e18;  // int64 counts 9.2e18; blocks are more than the pairs in them
  const double rows_q = problem.layout_q.num_rows(), rows_k = problem.layout_k.num_rows();
  if (rows_q * rows_k * problem.num_heads <= kMost) return;
  double pairs = 0;
  for (int seq = 0; seq < problem.layout_q.batch(); ++seq) {
    check_interrupt(64);
    const int len_q = problem.layout_q.len(seq), len_k = problem.layout_k.len(seq);
    pairs += static_cast<double>(visible_pairs(
        {problem.mask, len_q, len_k}, {.seq = seq, .len = len_q}, {.seq = seq, .len = len_k}));
  }
  pairs *= problem.num_heads;
  require(pairs <= kMost, "about ", pairs, " visible pairs of ", problem.num_heads,
          " query heads; expected at most ", kMost,
          ", which int64 counts. Pass fewer heads, or shorter sequences");
}

PlanCost cost(const Plan& plan, const ElementSizes& sizes, const BlockSize& block_size) {
  require_all_tiles(plan, "cost()");
  check_pairs(plan.problem);
  check_block_size(block_size);
  const KeyOwners owners(plan);
  const auto lists = count_lists(plan, owners, block_size);
  PlanCost total(plan.cp_size(), plan.num_steps(), block_size);
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const auto& steps = plan.steps_of_rank[rank];
    for (int i = 0; i < plan.num_steps(); ++i) {
      const auto& [counts, needed] = lists[steps[i].tiles];
      check_interrupt(8);
      total.add_work(rank, i, counts, steps[i].q.heads.size());
      total.rows_needed(rank, i) -= rows_of_owner(needed, rank);
    }
    add_traffic(total, plan, rank, steps, sizes);
  }
  return total;
}

int64_t PlanCost::all_bytes_received(int rank) const {
  return result_bytes_received[rank] + bytes_received.sum(rank);
}

int64_t PlanCost::all_bytes_sent(int rank) const {
  return result_bytes_sent[rank] + bytes_sent.sum(rank);
}

double PlanCost::imbalance() const {
  int64_t sum = 0, most = 0;
  for (int rank = 0; rank < pairs.ranks(); ++rank) {
    const int64_t of_rank = pairs.sum(rank);
    sum += of_rank;
    most = std::max(most, of_rank);
  }
  return sum == 0 ? 1.0 : static_cast<double>(most) * pairs.ranks() / static_cast<double>(sum);
}

double PlanCost::fill() const {
  const double area = static_cast<double>(blocks.sum()) * static_cast<double>(block_size.area());
  return area == 0 ? 1.0 : static_cast<double>(pairs.sum()) / area;
}

void check_block_size(const BlockSize& block_size) {
  require(block_size.q >= 1 && block_size.k >= 1, "block_size=(", block_size.q, ", ", block_size.k,
          "); expected the rows of a block of queries and of keys, at least 1 each. The default is "
          "(128, 128)");
}

}  // namespace ringside
