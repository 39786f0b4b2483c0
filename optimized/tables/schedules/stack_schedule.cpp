#include "optimized/tables/schedules/stack_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ringside {

Stacks::Stacks(const Plan& plan, int gap, Lengths lengths) : plan_(plan) {
  if (lengths == Lengths::any) {
    group_q_ = ringside::ranks_of_group(plan, Operand::q);
    group_kv_ = ringside::ranks_of_group(plan, Operand::kv);
  }
  for (const Operand operand : {Operand::q, Operand::kv}) {
    auto& residencies = operand == Operand::q ? q_ : kv_;
    residencies.push_back({stack_ranks(plan, 0, operand, gap), -1});
    for (int step = 0; step < plan.num_steps(); ++step)
      if (any_rank_moves(plan, step, operand))
        residencies.push_back({stack_ranks(plan, step + 1, operand, gap), step});
  }
}

int Stacks::at_step(Operand operand, int step) const {
  int at = 0;
  for (const Residency& residency : of(operand))
    at += residency.step >= 0 && residency.step <= step;
  return at;
}

std::vector<CellBlock> Stacks::carry(Operand operand, int residency) const {
  const Residency &from = of(operand)[residency - 1], &to = of(operand)[residency];
  return is_gathered(operand, residency)
             ? gather_blocks(from.stack, to.stack, ranks_of_group(operand))
             : carry_blocks(plan_, to.step, operand, from.stack, to.stack);
}

std::vector<std::vector<CellBlock>> Stacks::carry_back(Operand operand, int residency) const {
  const Residency &to = of(operand)[residency - 1], &from = of(operand)[residency];
  return is_gathered(operand, residency)
             ? gather_back_rounds(to.stack, from.stack, ranks_of_group(operand))
             : carry_back_rounds(plan_, from.step, operand, to.stack, from.stack);
}

namespace {

// A stack as buffers of a schedule.
struct Stacked {
  int whole = -1;             // all of its cells, as rows of one head
  std::vector<int> matrices;  // each with its heads
};
using PerResidency = std::vector<Stacked>;

class StackLowering {
 public:
  StackLowering(const Stacks& stacks, Pass pass, AccumulatorLayout layout)
      : stacks_(stacks), layout_(layout) {
    made_.schedule.pass = pass;
  }

  StackSchedule make() {
    made_.schedule.pass == Pass::forward ? forward() : backward();
    return std::move(made_);
  }

 private:
  const Plan& plan() const { return stacks_.plan(); }
  Schedule& schedule() { return made_.schedule; }

  // --- buffers

  int add_area(Payload payload) {
    schedule().areas.push_back({payload, 0});
    return static_cast<int>(schedule().areas.size()) - 1;
  }

  int64_t cells_of(Payload payload, const RankStack& stack) const {
    if (payload != Payload::results || layout_ == AccumulatorLayout::rows) return stack.cells;
    return rows_of_tiles(stack.matrices[0].rows) * stack.matrices[0].heads.size();
  }

  Stacked lay(Payload payload, const RankStack& stack, int area) {
    auto& buffers = schedule().buffers;
    const auto add = [&](int rows, Range heads, int64_t cell) {
      buffers.push_back({payload, rows, heads, area, cell});
      return static_cast<int>(buffers.size()) - 1;
    };
    const int64_t cells = cells_of(payload, stack);
    int64_t& most = schedule().areas[area].cells;
    most = std::max(most, cells);
    Stacked laid{add(static_cast<int>(cells), {0, 1}, 0), {}};
    for (const RankStack::Matrix& m : stack.matrices)
      laid.matrices.push_back(add(m.rows, m.heads, m.cell));
    return laid;
  }

  PerResidency lay_each(Payload payload, Operand operand) {
    PerResidency all;
    for (const auto& residency : stacks_.of(operand))
      all.push_back(lay(payload, residency.stack, add_area(payload)));
    return all;
  }

  // Two areas in turn, for what is needed until the next exchange only.
  PerResidency lay_in_turn(Payload payload, Operand operand) {
    PerResidency all;
    std::vector<int> areas;
    for (const auto& residency : stacks_.of(operand)) {
      if (areas.size() < 2) areas.push_back(add_area(payload));
      all.push_back(lay(payload, residency.stack, areas[all.size() % 2]));
    }
    return all;
  }

  // --- operations

  StackedOperation& add(Operation op) {
    schedule().operations.push_back(std::move(op));
    return made_.operations.emplace_back();
  }
  Block whole(int buffer) {
    return {buffer, 0, schedule().buffers[buffer].rows, schedule().buffers[buffer].heads};
  }

  void clear(int step, const Stacked& sums) {
    Operation op{.kind = OperationKind::clear, .step = step};
    op.to = whole(sums.whole);
    add(std::move(op));
  }

  void move(OperationKind kind, int step, int from, int to, std::vector<CellBlock> blocks,
            bool is_gathered) {
    if (blocks.empty()) return;
    Operation op{.kind = kind, .step = step};
    op.from = whole(from), op.to = whole(to);
    StackedOperation& tables = add(std::move(op));
    tables.blocks = std::move(blocks), tables.is_gathered = is_gathered;
  }
  void carry(const PerResidency& stacks, Operand operand, int residency) {
    move(OperationKind::copy, stacks_.of(operand)[residency].step, stacks[residency - 1].whole,
         stacks[residency].whole, stacks_.carry(operand, residency),
         stacks_.is_gathered(operand, residency));
  }
  void carry_back(const PerResidency& sums, Operand operand, int residency) {
    for (auto& round : stacks_.carry_back(operand, residency))
      move(OperationKind::combine, stacks_.of(operand)[residency].step, sums[residency].whole,
           sums[residency - 1].whole, std::move(round), stacks_.is_gathered(operand, residency));
  }

  // The ranks that compute something, by the heads they hold.
  void compute(int step) {
    const RankStack& q = stacks_.of(Operand::q)[at_q_].stack;
    const RankStack& kv = stacks_.of(Operand::kv)[at_kv_].stack;
    std::map<std::pair<int, int>, std::vector<StackedRank>> by_matrices;
    for (int rank = 0; rank < plan().cp_size(); ++rank) {
      const RankStack::Place &of_q = q.of_rank[rank], &of_kv = kv.of_rank[rank];
      if (!plan().tiles(plan().steps_of_rank[rank][step]).empty())
        by_matrices[{of_q.matrix, of_kv.matrix}].push_back({rank, of_q.row, of_kv.row});
    }
    for (auto& [matrices, ranks] : by_matrices) {
      Operation op{.kind = OperationKind::compute, .step = step};
      op.queries = q_[at_q_].matrices[matrices.first];
      op.keys = kv_[at_kv_].matrices[matrices.second];
      op.query_sums = query_sums_[at_q_].matrices[matrices.first];
      if (!key_sums_.empty()) op.key_sums = key_sums_[at_kv_].matrices[matrices.second];
      StackedOperation& tables = add(std::move(op));
      tables.ranks = std::move(ranks), tables.starts = starts_;
    }
    starts_ = false;
  }

  // --- passes

  void forward() {
    q_ = lay_in_turn(Payload::queries, Operand::q);
    kv_ = lay_in_turn(Payload::keys, Operand::kv);
    query_sums_ = lay_each(Payload::results, Operand::q);
    start_results(0);
    for (int step = 0; step < plan().num_steps(); ++step) {
      if (stacks_.at_step(Operand::q, step) > at_q_) {
        carry(q_, Operand::q, ++at_q_);
        start_results(step);
      }
      if (stacks_.at_step(Operand::kv, step) > at_kv_) carry(kv_, Operand::kv, ++at_kv_);
      compute(step);
    }
    for (; at_q_ > 0; --at_q_) carry_back(query_sums_, Operand::q, at_q_);  // the way q came
    name_home();
  }

  void start_results(int step) {
    clear(step, query_sums_[at_q_]);
    starts_ = true;
  }

  void backward() {
    q_ = lay_each(Payload::queries, Operand::q);
    kv_ = lay_each(Payload::keys, Operand::kv);
    query_sums_ = lay_in_turn(Payload::query_gradients, Operand::q);
    key_sums_ = lay_in_turn(Payload::key_gradients, Operand::kv);
    while (at_q_ + 1 < static_cast<int>(q_.size())) carry(q_, Operand::q, ++at_q_);
    while (at_kv_ + 1 < static_cast<int>(kv_.size())) carry(kv_, Operand::kv, ++at_kv_);
    const int last = plan().num_steps() - 1;
    clear(std::max(last, 0), query_sums_[at_q_]);
    start_key_gradients(std::max(last, 0));
    for (int step = last; step >= 0; --step) {
      go_back(step, stacks_.at_step(Operand::q, step), stacks_.at_step(Operand::kv, step));
      compute(step);
      add_late();
    }
    go_back(0, 0, 0);
    add_late();
    name_home();
  }

  void start_key_gradients(int step) {
    clear(step, key_sums_[at_kv_]);
    starts_ = true;
  }

  // Those of keys and values wait until the step has written its own: the first launch finds zeros,
  // and need not add.
  void go_back(int step, int to_q, int to_kv) {
    while (at_kv_ > to_kv) {
      add_late();
      --at_kv_;
      start_key_gradients(step);
      late_ = true;
    }
    for (; at_q_ > to_q; --at_q_) {
      clear(step, query_sums_[at_q_ - 1]);
      carry_back(query_sums_, Operand::q, at_q_);
    }
  }
  void add_late() {
    if (late_) carry_back(key_sums_, Operand::kv, at_kv_ + 1);
    late_ = false;
  }

  void name_home() {
    Schedule& s = schedule();
    s.home_queries = q_[0].matrices[0], s.home_keys = kv_[0].matrices[0];
    s.home_query_sums = query_sums_[0].matrices[0];
    if (!key_sums_.empty()) s.home_key_sums = key_sums_[0].matrices[0];
  }

  const Stacks& stacks_;
  AccumulatorLayout layout_;
  StackSchedule made_;
  PerResidency q_, kv_, query_sums_, key_sums_;
  int at_q_ = 0, at_kv_ = 0;
  bool starts_ = true, late_ = false;
};

}  // namespace

StackSchedule stack_schedule(const Stacks& stacks, Pass pass, AccumulatorLayout layout) {
  return StackLowering(stacks, pass, layout).make();
}

}  // namespace ringside
