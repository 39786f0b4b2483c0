// Plans from tables, which are proved, and tables of plans. And a part of a plan: its first steps,
// some of its tiles, every exchange of those steps. What is run of a proved plan is as safe as the
// whole; it is just not all of the attention, and verify() says so.
#include "reference/plan/plan_tables.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/plan_views.h"
#include "reference/support/errors.h"
#include "reference/verify/verify.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;
using TileNames = std::set<std::tuple<int, int, int>>;  // step, rank, index

// --- tables ---

py::dict tables_of(const Plan& plan) {
  PlanTables tables = to_tables(plan);
  py::dict all;
  for (size_t i = 0; i < tables.all().size(); ++i) {
    const Table& table = *tables.all()[i];
    py::array_t<int32_t> cells({table.rows(), table.width()});
    std::copy(table.cells.begin(), table.cells.end(), cells.mutable_data());
    all[kTableNames[i]] = py::make_tuple(table.columns, cells);
  }
  return all;
}

// Whoever wrote the tables, what runs has been proved: that it stays inside its buffers, and, where
// it is to be complete, that it is all of the attention.
void prove(const Plan& plan, bool complete) {
  if (complete) {
    verify(plan);
    return;
  }
  verify_indices(plan);
  verify_exchanges(plan);
  verify_kinds(plan);
  verify_tiles(plan);
}

std::shared_ptr<Plan> plan_from_tables(const Problem& problem, const std::string& partition,
                                       const std::string& comm, const py::dict& all,
                                       bool complete) {
  auto plan = std::make_shared<Plan>();
  plan->problem = problem;
  plan->partition = partition;
  plan->comm = comm;
  PlanTables tables;
  for (size_t i = 0; i < tables.all().size(); ++i) {
    const char* name = kTableNames[i];
    require(all.contains(name), "the table \"", name, "\" is missing");
    Table& table = *tables.all()[i];
    const py::array cells = as_array(all[name], concat("tables[\"", name, "\"]"));
    require(cells.ndim() == 2 && cells.shape(1) == table.width(), "the table \"", name,
            "\" must be integers of shape [rows, ", table.width(), "]");
    table.cells = integers(cells.attr("reshape")(-1), name);
  }
  without_gil([&] {
    from_tables(tables, *plan);
    prove(*plan, complete);
  });
  return plan;
}

// --- parts ---

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

void bind_tables(PlanClass& plan) {
  plan.def(py::init(strictly<"layout_q", "layout_k", "mask", "num_heads", "num_kv_heads",
                             "partition", "comm", "tables", "complete">(
               [](const PackedLayout& layout_q, const PackedLayout& layout_k, const Mask& mask,
                  int num_heads, int num_kv_heads, const std::string& partition,
                  const std::string& comm, const py::dict& tables, bool complete) {
                 return plan_from_tables({layout_q, layout_k, mask, num_heads, num_kv_heads},
                                         partition, comm, tables, complete);
               })),
           "layout_q"_a, "layout_k"_a, py::kw_only(), "mask"_a, "num_heads"_a, "num_kv_heads"_a,
           "partition"_a, "comm"_a, "tables"_a, "complete"_a = true)
      .def(py::init(strictly<"whole", "num_steps", "tiles">(&part_of)), "whole"_a, py::kw_only(),
           "num_steps"_a, "tiles"_a = py::none())
      .def("tables", &tables_of, "The plan as int32 tables: {name: (columns, cells)}.");
}

}  // namespace ringside::bindings
