// What the bindings of a plan share.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "reference/plan.h"

namespace ringside::bindings {

struct StepView {  // a step, kept alive by its plan
  std::shared_ptr<const Plan> plan;
  int rank = 0, index = 0;

  const Step& step() const { return plan->steps_of_rank[rank][index]; }
};

using PlanClass = pybind11::class_<Plan, std::shared_ptr<Plan>>;
void bind_cost(pybind11::module_& m, PlanClass& plan);
void bind_schedule(pybind11::module_& m, PlanClass& plan);
void bind_runs(PlanClass& plan);
void bind_part(PlanClass& plan);

Operand operand_from(const std::string& name);

}  // namespace ringside::bindings
