// What a plan costs, as NumPy arrays.
#include <algorithm>
#include <optional>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/plan_views.h"
#include "reference/errors.h"
#include "reference/schedule/schedule_cost.h"

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

struct CostOfPasses : PlanCost {
  PassCost forward_pass, backward_pass;
};

py::array_t<int64_t> per_step(const std::vector<std::vector<int64_t>>& x) {
  const py::ssize_t ranks = static_cast<py::ssize_t>(x.size());
  py::array_t<int64_t> cells({ranks, ranks == 0 ? 0 : static_cast<py::ssize_t>(x[0].size())});
  int64_t* next = cells.mutable_data();
  for (const auto& of_rank : x) next = std::copy(of_rank.begin(), of_rank.end(), next);
  return cells;
}

CostOfPasses cost_of(const Plan& plan, int head_dim, std::optional<int> head_dim_v,
                     int bytes_per_element) {
  require(head_dim >= 1 && head_dim_v.value_or(1) >= 1 && bytes_per_element >= 1,
          "head_dim=", head_dim, ", head_dim_v=", head_dim_v.value_or(head_dim),
          ", bytes_per_element=", bytes_per_element, "; all must be at least 1");
  const ElementSizes sizes{head_dim, head_dim_v.value_or(head_dim), bytes_per_element};
  return without_gil([&] {
    return CostOfPasses{cost(plan, sizes), pass_cost(plan, Pass::forward, sizes),
                        pass_cost(plan, Pass::backward, sizes)};
  });
}

}  // namespace

void bind_cost(py::module_& m, PlanClass& plan) {
  py::class_<CostOfPasses>(m, "PlanCost", R"doc(
What the passes of a plan cost. Arrays are int64, [cp_size, num_steps] unless said.
)doc")
      .def_property_readonly(
          "pairs", [](const CostOfPasses& c) { return per_step(c, &StepCost::pairs); },
          "Visible (query, key) pairs, summed over the query heads computed there.")
      .def_property_readonly(
          "bytes_sent", [](const CostOfPasses& c) { return per_step(c, &StepCost::bytes_sent); },
          "Bytes of q, k and v sent to other ranks before the step.")
      .def_property_readonly(
          "bytes_received",
          [](const CostOfPasses& c) { return per_step(c, &StepCost::bytes_received); },
          "Bytes of q, k and v received from other ranks before the step.")
      .def_property_readonly(
          "rows_q", [](const CostOfPasses& c) { return per_step(c, &StepCost::rows_q); },
          "Rows of the resident query buffer.")
      .def_property_readonly(
          "rows_kv", [](const CostOfPasses& c) { return per_step(c, &StepCost::rows_kv); },
          "Rows of the resident K/V buffer.")
      .def_property_readonly(
          "result_bytes_sent", [](const CostOfPasses& c) { return per_rank(c.result_bytes_sent); },
          "[cp_size] bytes of out and float32 lse sent home after the last step.")
      .def_property_readonly(
          "result_bytes_received",
          [](const CostOfPasses& c) { return per_rank(c.result_bytes_received); },
          "[cp_size] bytes of out and float32 lse that come home after the last step.")
      .def_property_readonly(
          "backward_bytes_sent",
          [](const CostOfPasses& c) { return per_step(c.backward_pass.bytes_sent); },
          "Bytes that the backward pass sends for the step: queries with dout, lse and delta, keys "
          "and values anew from their owners, gradients on their way home in float32.")
      .def_property_readonly(
          "backward_bytes_received",
          [](const CostOfPasses& c) { return per_step(c.backward_pass.bytes_received); },
          "Bytes that the backward pass receives for the step.")
      .def_property_readonly(
          "workspace_bytes",
          [](const CostOfPasses& c) { return per_rank(c.forward_pass.workspace_bytes); },
          "[cp_size] memory of the forward pass beside the rank's own arrays, float32 results "
          "included, where each rank runs alone by its schedule.")
      .def_property_readonly(
          "backward_workspace_bytes",
          [](const CostOfPasses& c) { return per_rank(c.backward_pass.workspace_bytes); },
          "[cp_size] memory of the backward pass beside the rank's own arrays, likewise.")
      .def_property_readonly("imbalance", &CostOfPasses::imbalance,
                             "max / mean over the ranks of their pairs; 1 is perfect.");
  plan.def("cost", strictly<"head_dim", "head_dim_v", "bytes_per_element">(&cost_of), py::kw_only(),
           "head_dim"_a = 128, "head_dim_v"_a = py::none(), "bytes_per_element"_a = 2,
           "Work, traffic and memory of both passes.");
}

}  // namespace ringside::bindings
