#include "reference/cost.h"

#include <algorithm>
#include <numeric>

#include "reference/interrupt.h"
#include "reference/tiles.h"

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

}  // namespace

PlanCost cost(const Plan& plan, const ElementSizes& sizes) {
  std::vector<int64_t> pairs_of_list;  // of one head
  for (const auto& tiles : plan.tile_lists) {
    int64_t pairs = 0;
    for (const Tile& tile : tiles) {
      check_interrupt(tile.q.len);
      pairs += visible_pairs(plan.problem, tile);
    }
    pairs_of_list.push_back(pairs);
  }

  PlanCost total;
  total.result_bytes_received.resize(plan.cp_size());
  total.result_bytes_sent.resize(plan.cp_size());
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    auto& costs = total.step_of_rank.emplace_back();
    for (const Step& step : plan.steps_of_rank[rank]) {
      StepCost& c = costs.emplace_back();
      check_interrupt(static_cast<int64_t>(step.before.sends.size() + step.before.receives.size()) +
                      8);
      c.pairs = pairs_of_list[step.tiles] * step.q.heads.size();
      c.rows_q = plan.rows(step.q);
      c.rows_kv = plan.rows(step.kv);
      for (const Message& m : step.before.sends) {
        if (m.peer == rank) continue;
        c.bytes_sent += bytes(m, sizes);
        if (m.operand == Operand::q) total.result_bytes_received[rank] += result_bytes(m, sizes);
      }
      for (const Message& m : step.before.receives) {
        if (m.peer == rank) continue;
        c.bytes_received += bytes(m, sizes);
        if (m.operand == Operand::q) total.result_bytes_sent[rank] += result_bytes(m, sizes);
      }
    }
  }
  return total;
}

int64_t PlanCost::pairs(int rank) const {
  int64_t sum = 0;
  for (const StepCost& c : step_of_rank[rank]) sum += c.pairs;
  return sum;
}

int64_t PlanCost::bytes_received(int rank) const {
  int64_t sum = result_bytes_received[rank];
  for (const StepCost& c : step_of_rank[rank]) sum += c.bytes_received;
  return sum;
}

int64_t PlanCost::bytes_sent(int rank) const {
  int64_t sum = result_bytes_sent[rank];
  for (const StepCost& c : step_of_rank[rank]) sum += c.bytes_sent;
  return sum;
}

double PlanCost::imbalance() const {
  int64_t sum = 0, most = 0;
  const int ranks = static_cast<int>(step_of_rank.size());
  for (int rank = 0; rank < ranks; ++rank) {
    sum += pairs(rank);
    most = std::max(most, pairs(rank));
  }
  return sum == 0 ? 1.0 : static_cast<double>(most) * ranks / static_cast<double>(sum);
}

}  // namespace ringside
