#include "reference/cost.h"

#include <algorithm>
#include <utility>

#include "reference/interpret.h"
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

std::vector<int64_t> pairs_of_lists(const Plan& plan) {  // of one head
  std::vector<int64_t> pairs_of_list;
  for (const auto& tiles : plan.tile_lists) {
    int64_t pairs = 0;
    for (const Tile& tile : tiles) {
      check_interrupt(tile.q.len);
      pairs += visible_pairs(plan.problem, tile);
    }
    pairs_of_list.push_back(pairs);
  }
  return pairs_of_list;
}

class Counter {
 public:
  Counter(const Plan& plan, const ElementSizes& sizes)
      : plan_(plan), sizes_(sizes), pairs_of_list_(pairs_of_lists(plan)) {
    total_.step_of_rank.assign(plan.cp_size(), std::vector<StepCost>(plan.num_steps()));
    total_.result_bytes_received.resize(plan.cp_size());
    total_.result_bytes_sent.resize(plan.cp_size());
  }

  void exchange(int step, Operand operand) {
    for (int rank = 0; rank < plan_.cp_size(); ++rank) {
      const Exchange& group = plan_.steps_of_rank[rank][step].before;
      StepCost& c = total_.step_of_rank[rank][step];
      check_interrupt(static_cast<int64_t>(group.sends.size() + group.receives.size()) + 4);
      for (const Message& m : group.sends) {
        if (m.peer == rank || m.operand != operand) continue;
        c.bytes_sent += bytes(m, sizes_);
        if (operand == Operand::q) total_.result_bytes_received[rank] += result_bytes(m, sizes_);
      }
      for (const Message& m : group.receives) {
        if (m.peer == rank || m.operand != operand) continue;
        c.bytes_received += bytes(m, sizes_);
        if (operand == Operand::q) total_.result_bytes_sent[rank] += result_bytes(m, sizes_);
      }
    }
  }

  void compute(int index) {
    for (int rank = 0; rank < plan_.cp_size(); ++rank) {
      const Step& step = plan_.steps_of_rank[rank][index];
      StepCost& c = total_.step_of_rank[rank][index];
      check_interrupt(4);
      c.pairs = pairs_of_list_[step.tiles] * step.q.heads.size();
      c.rows_q = plan_.rows(step.q);
      c.rows_kv = plan_.rows(step.kv);
    }
  }

  PlanCost total() { return std::move(total_); }

 private:
  const Plan& plan_;
  const ElementSizes& sizes_;
  std::vector<int64_t> pairs_of_list_;
  PlanCost total_;
};

}  // namespace

PlanCost cost(const Plan& plan, const ElementSizes& sizes) {
  Counter counter(plan, sizes);
  interpret(plan, counter);
  return counter.total();
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
