// What the bindings of a plan share.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/plan/cost.h"
#include "reference/plan/key_owners.h"
#include "reference/plan/plan.h"
#include "reference/transport/transport.h"

namespace ringside::bindings {

// Whose keys each buffer of a plan holds, counted when somebody asks.
class ResidentKeys {
 public:
  explicit ResidentKeys(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  const std::vector<int>& owners(const Buffer& buffer);  // ranks with rows in it, rising

 private:
  std::vector<int> owners_of(int shard);

  std::shared_ptr<const Plan> plan_;
  std::optional<KeyOwners> homes_;
  std::map<int, std::vector<int>> known_;  // by shard
};

struct StepView {  // a step, kept alive by its plan
  std::shared_ptr<const Plan> plan;
  int rank = 0, index = 0;
  std::shared_ptr<ResidentKeys> keys;  // of all steps that were asked for together

  const Step& step() const { return plan->steps_of_rank[rank][index]; }
};

using PlanClass = pybind11::class_<Plan, std::shared_ptr<Plan>>;
void bind_tables(PlanClass& plan);
void bind_cost(pybind11::module_& m, PlanClass& plan);
void bind_schedule(pybind11::module_& m, PlanClass& plan);
void bind_runs(PlanClass& plan);
void bind_estimate(pybind11::module_& m);

// What the arguments of a plan say; refused where they say nothing that can be.
Placement placement_from(const Problem& problem, const pybind11::object& partition,
                         const pybind11::object& partition_k, std::optional<int> cp_size,
                         const std::optional<std::string>& own_name = {});
Transport transport_from(const std::string& comm, std::optional<int> a2a_size,
                         std::optional<int> stages);
ElementSizes sizes_from(int head_dim, std::optional<int> head_dim_v, int bytes_per_element);

Operand operand_from(const std::string& name);

}  // namespace ringside::bindings
