// The schedules of a device on which every rank of a plan is virtual: those of one member, whose
// buffers are the stacks of all ranks (move_tables.h).
//
// What an exchange moves between ranks is a copy within the device, and one operation serves all
// ranks: a table of cells for copies and sums, a list of ranks with the same heads for tiles. What
// is resident stays from exchange to exchange, forward in two areas in turn; backward all of it is
// brought once more, and gradients go back the way their operands came. Host code only.
#pragma once

#include <vector>

#include "optimized/tables/accumulator_tiles.h"
#include "optimized/tables/capacity.h"
#include "optimized/tables/move_tables.h"
#include "reference/schedule/schedule.h"

namespace ringside {

// What is resident of the operands from exchange to exchange, of all ranks.
class Stacks {
 public:
  struct Residency {
    RankStack stack;
    int step = -1;  // whose exchange brought it; -1: home
  };
  // `gap` rows behind each rank belong to nobody. Of any lengths, these say where the rows lie that
  // a group of ranks gathers. The plan is to outlive this.
  Stacks(const Plan& plan, int gap, Lengths lengths = Lengths::of_plan);

  const Plan& plan() const { return plan_; }
  const std::vector<Residency>& of(Operand operand) const {
    return operand == Operand::q ? q_ : kv_;
  }
  const RankStack& home(Operand operand) const { return of(operand)[0].stack; }
  int at_step(Operand operand, int step) const;  // which residency
  // From the residency before, and back to it in rounds. Rows go by a map where they are gathered.
  std::vector<CellBlock> carry(Operand operand, int residency) const;
  std::vector<std::vector<CellBlock>> carry_back(Operand operand, int residency) const;
  bool is_gathered(Operand operand, int residency) const {
    return residency == 1 && ranks_of_group(operand) > 1;
  }

 private:
  int ranks_of_group(Operand operand) const { return operand == Operand::q ? group_q_ : group_kv_; }

  const Plan& plan_;
  int group_q_ = 1, group_kv_ = 1;
  std::vector<Residency> q_, kv_;
};

struct StackedRank {  // of a compute operation, and where its rows begin in the buffers
  int rank = 0, q_row = 0, k_row = 0;
};

struct StackedOperation {
  std::vector<CellBlock> blocks;  // of copy and combine: of whole stacks
  bool is_gathered = false;       // whether these go by a map
  std::vector<StackedRank> ranks;
  bool starts = false;  // whether the sums of a compute operation hold nothing before it
};

struct StackSchedule {
  Schedule schedule;  // home buffers lie in areas, too
  std::vector<StackedOperation> operations;
};

// `layout` is that of results at home.
StackSchedule stack_schedule(const Stacks& stacks, Pass pass, AccumulatorLayout layout);

}  // namespace ringside
