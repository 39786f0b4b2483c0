// What a plan costs, as NumPy arrays.
#include <optional>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/plan_views.h"
#include "reference/cost.h"
#include "reference/errors.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

template <typename Field>
py::array_t<int64_t> per_step(const PlanCost& cost, Field StepCost::*field) {
  const py::ssize_t ranks = static_cast<py::ssize_t>(cost.step_of_rank.size());
  const py::ssize_t steps = ranks == 0 ? 0 : static_cast<py::ssize_t>(cost.step_of_rank[0].size());
  py::array_t<int64_t> cells({ranks, steps});
  auto cell = cells.mutable_unchecked<2>();
  for (py::ssize_t rank = 0; rank < ranks; ++rank)
    for (py::ssize_t step = 0; step < steps; ++step)
      cell(rank, step) = cost.step_of_rank[rank][step].*field;
  return cells;
}

py::array_t<int64_t> per_rank(const std::vector<int64_t>& x) {
  return py::array_t<int64_t>(static_cast<py::ssize_t>(x.size()), x.data());
}

PlanCost cost_of(const Plan& plan, int head_dim, std::optional<int> head_dim_v,
                 int bytes_per_element) {
  require(head_dim >= 1 && head_dim_v.value_or(1) >= 1 && bytes_per_element >= 1,
          "head_dim=", head_dim, ", head_dim_v=", head_dim_v.value_or(head_dim),
          ", bytes_per_element=", bytes_per_element, "; all must be at least 1");
  return without_gil([&] {
    return cost(plan, {head_dim, head_dim_v.value_or(head_dim), bytes_per_element});
  });
}

}  // namespace

void bind_cost(py::module_& m, PlanClass& plan) {
  py::class_<PlanCost>(m, "PlanCost", R"doc(
What a plan's forward pass costs. Arrays are int64, [cp_size, num_steps] unless said.
)doc")
      .def_property_readonly(
          "pairs", [](const PlanCost& c) { return per_step(c, &StepCost::pairs); },
          "Visible (query, key) pairs, summed over the query heads computed there.")
      .def_property_readonly(
          "bytes_sent", [](const PlanCost& c) { return per_step(c, &StepCost::bytes_sent); },
          "Bytes of q, k and v sent to other ranks before the step.")
      .def_property_readonly(
          "bytes_received",
          [](const PlanCost& c) { return per_step(c, &StepCost::bytes_received); },
          "Bytes of q, k and v received from other ranks before the step.")
      .def_property_readonly(
          "rows_q", [](const PlanCost& c) { return per_step(c, &StepCost::rows_q); },
          "Rows of the resident query buffer.")
      .def_property_readonly(
          "rows_kv", [](const PlanCost& c) { return per_step(c, &StepCost::rows_kv); },
          "Rows of the resident K/V buffer.")
      .def_property_readonly(
          "result_bytes_sent", [](const PlanCost& c) { return per_rank(c.result_bytes_sent); },
          "[cp_size] bytes of out and float32 lse sent home after the last step.")
      .def_property_readonly(
          "result_bytes_received",
          [](const PlanCost& c) { return per_rank(c.result_bytes_received); },
          "[cp_size] bytes of out and float32 lse that come home after the last step.")
      .def_property_readonly("imbalance", &PlanCost::imbalance,
                             "max / mean over the ranks of their pairs; 1 is perfect.");
  plan.def("cost", strictly<"head_dim", "head_dim_v", "bytes_per_element">(&cost_of), py::kw_only(),
           "head_dim"_a = 128, "head_dim_v"_a = py::none(), "bytes_per_element"_a = 2,
           "Work, traffic and memory.");
}

}  // namespace ringside::bindings
