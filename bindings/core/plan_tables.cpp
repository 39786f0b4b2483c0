// A part of a plan: its first steps, some of its tiles, every exchange of those steps. What is run
// of a proved plan is as safe as the whole; it is just not all of the attention, and verify() says
// so.
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "bindings/core/arguments.h"
#include "bindings/core/plan_views.h"
#include "reference/support/errors.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;
using TileNames = std::set<std::tuple<int, int, int>>;  // step, rank, index

void keep_only(const TileNames& kept, Plan& plan) {
  const auto lists = plan.tile_lists;
  const auto steps_of_rank = plan.steps_of_rank;
  for (auto& steps : plan.steps_of_rank)
    for (Step& step : steps) step.tiles = 0;
  for (const auto& [step, rank, index] : kept) {
    require(0 <= rank && rank < plan.cp_size() && 0 <= step && step < plan.num_steps(), "step ",
            step, " of rank ", rank, " is not in this part of the plan");
    const auto& all = lists[steps_of_rank[rank][step].tiles];
    require(0 <= index && index < static_cast<int>(all.size()), "step ", step, " of rank ", rank,
            " has ", all.size(), " tiles; got tile ", index);
    int& list = plan.steps_of_rank[rank][step].tiles;
    if (list == 0) {
      list = static_cast<int>(plan.tile_lists.size());
      plan.tile_lists.emplace_back();
    }
    plan.tile_lists[list].push_back(all[index]);
  }
}

std::shared_ptr<Plan> part_of(const Plan& whole, int num_steps,
                              const std::optional<TileNames>& tiles) {
  require(0 <= num_steps && num_steps <= whole.num_steps(), "num_steps=", num_steps,
          "; expected 0 to ", whole.num_steps());
  auto part = std::make_shared<Plan>(whole);
  for (auto& steps : part->steps_of_rank) steps.resize(num_steps);
  if (tiles) keep_only(*tiles, *part);
  return part;
}

}  // namespace

void bind_part(PlanClass& plan) {
  plan.def(py::init(strictly<"whole", "num_steps", "tiles">(&part_of)), "whole"_a, py::kw_only(),
           "num_steps"_a, "tiles"_a = py::none());
}

}  // namespace ringside::bindings
