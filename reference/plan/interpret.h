// The walk over a plan that everybody shares who does something step by step for all its ranks.
//
// A visitor says what an exchange and a step's tiles mean to it: data that moves (execute.h),
// bytes that are counted (cost.h), tables that are made. Forth, an operand is exchanged before the
// tiles of its step, where any rank's buffer changes; back, the tiles come first and the same
// exchanges are transposed, last first.
#pragma once

#include "reference/plan/residency.h"

namespace ringside {

// visitor.exchange(step, operand) and visitor.compute(step), first step first.
template <typename Visitor>
void interpret(const Plan& plan, Visitor& visitor) {
  require_all_tiles(plan, "a walk over all ranks");
  for (int step = 0; step < plan.num_steps(); ++step) {
    for (const Operand operand : {Operand::q, Operand::kv})
      if (any_rank_moves(plan, step, operand)) visitor.exchange(step, operand);
    visitor.compute(step);
  }
}

// visitor.compute(step) and visitor.exchange_back(step, operand), last step first.
template <typename Visitor>
void interpret_back(const Plan& plan, Visitor& visitor) {
  for (int step = plan.num_steps() - 1; step >= 0; --step) {
    visitor.compute(step);
    for (const Operand operand : {Operand::kv, Operand::q})
      if (any_rank_moves(plan, step, operand)) visitor.exchange_back(step, operand);
  }
}

}  // namespace ringside
