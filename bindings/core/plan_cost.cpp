// What a plan costs, as NumPy arrays.
#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/plan_views.h"
#include "reference/schedule/schedule_cost.h"
#include "reference/support/errors.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

constexpr int kTold = 8;  // ranks in a table

// A view, not a copy: there may be millions of cells. Nobody may write to it.
py::array_t<int64_t> per_step(const py::object& self, const PerStep& field) {
  py::array_t<int64_t> cells({field.ranks(), field.steps()}, field.data(), self);
  cells.attr("flags").attr("writeable") = false;
  return cells;
}

template <PerStep PlanCost::*kField>
py::array_t<int64_t> of_plan(const py::object& self) {
  return per_step(self, self.cast<const CostOfPasses&>().*kField);
}

py::array_t<int64_t> per_rank(const std::vector<int64_t>& x) {
  return py::array_t<int64_t>(static_cast<py::ssize_t>(x.size()), x.data());
}

py::array_t<double> fill_per_step(const CostOfPasses& cost) {
  py::array_t<double> cells({cost.pairs.ranks(), cost.pairs.steps()});
  const int64_t *pairs = cost.pairs.data(), *blocks = cost.blocks.data();
  const auto area = static_cast<double>(cost.block_size.area());
  for (py::ssize_t i = 0; i < cells.size(); ++i)
    cells.mutable_data()[i] =
        blocks[i] == 0 ? 1
                       : static_cast<double>(pairs[i]) / (static_cast<double>(blocks[i]) * area);
  return cells;
}

// The first and the last of many ranks; -1 stands for those between.
std::vector<int> few_of(int ranks) {
  std::vector<int> few;
  for (int rank = 0; rank < ranks; ++rank) {
    if (ranks <= kTold || rank < kTold / 2 || rank >= ranks - kTold / 2)
      few.push_back(rank);
    else if (rank == kTold / 2)
      few.push_back(-1);
  }
  return few;
}

// A table: a line a rank, sums over its steps.
std::string told(const CostOfPasses& cost) {
  const int ranks = cost.pairs.ranks(), steps = cost.pairs.steps();
  std::ostringstream out;
  out << "PlanCost of " << ranks << (ranks == 1 ? " rank" : " ranks") << ", " << steps
      << (steps == 1 ? " step" : " steps") << ": imbalance " << std::fixed << std::setprecision(2)
      << cost.imbalance() << ", fill " << cost.fill();
  const auto line = [&](const auto& rank, const auto&... cells) {
    out << "\n" << std::setw(6) << rank;
    ((out << std::setw(16) << cells), ...);
  };
  line("rank", "pairs", "blocks", "bytes_received", "bytes_sent", "rows_kv");
  for (const int rank : few_of(ranks)) {
    if (rank == -1) {
      line("...", "...", "...", "...", "...", "...");
      continue;
    }
    const auto rows = cost.rows_kv.of_rank(rank);
    line(rank, cost.pairs.sum(rank), cost.blocks.sum(rank), cost.all_bytes_received(rank),
         cost.all_bytes_sent(rank), rows.empty() ? 0 : *std::ranges::max_element(rows));
  }
  return out.str();
}

using Rows = std::pair<int, int>;

CostOfPasses cost_of(const Plan& plan, int head_dim, std::optional<int> head_dim_v,
                     int bytes_per_element, Rows block_size, bool keep_kv) {
  const ElementSizes sizes = sizes_from(head_dim, head_dim_v, bytes_per_element);
  const BlockSize block{block_size.first, block_size.second};
  check_block_size(block);
  const KeepKv keep = keep_kv ? KeepKv::yes : KeepKv::no;
  return without_gil([&] { return cost_of_passes(plan, sizes, block, keep); });
}

template <PerStep PassCost::*kField>
py::array_t<int64_t> of_backward(const py::object& self) {
  return per_step(self, self.cast<const CostOfPasses&>().backward_pass.*kField);
}

void bind_counts_of_steps(py::class_<CostOfPasses>& cost) {
  const auto field = [&](const char* name, auto get, const char* doc) {
    cost.def_property_readonly(name, get, doc);
  };
  field("pairs", &of_plan<&PlanCost::pairs>,
        "Visible (query, key) pairs, summed over the query heads computed there.");
  field("blocks", &of_plan<&PlanCost::blocks>,
        "Blocks of query rows by key rows (block_size) that hold a visible pair, summed over the "
        "query heads: what a kernel computes. They are cut from the first row of each segment; a "
        "segment's end, or that of its tokens, ends a block.");
  field("partial_blocks", &of_plan<&PlanCost::partial_blocks>,
        "Of blocks: those that hold a hidden pair, too, where a kernel compares positions.");
  field("visits", &of_plan<&PlanCost::visits>,
        "Query blocks that meet any key block in the step, summed over the query heads: what a "
        "kernel loads and stores.");
  field("tiles", &of_plan<&PlanCost::tiles>, "Tiles, the same for every head.");
  field("rows_needed", &of_plan<&PlanCost::rows_needed>,
        "Resident K/V rows that are at home on other ranks and that some tile of the step sees.");
  field("bytes_sent", &of_plan<&PlanCost::bytes_sent>,
        "Bytes of q, k and v sent to other ranks before the step.");
  field("bytes_received", &of_plan<&PlanCost::bytes_received>,
        "Bytes of q, k and v received from other ranks before the step.");
  field("messages", &of_plan<&PlanCost::messages>,
        "Messages received from other ranks before the step, q apart from k and v.");
  field("rows_q", &of_plan<&PlanCost::rows_q>, "Rows of the resident query buffer.");
  field("rows_kv", &of_plan<&PlanCost::rows_kv>, "Rows of the resident K/V buffer.");
}

void bind_bytes_of_backward(py::class_<CostOfPasses>& cost) {
  cost.def_property_readonly(
          "backward_bytes_sent", &of_backward<&PassCost::bytes_sent>,
          "Bytes that the backward pass sends for the step: queries with dout, lse and delta, keys "
          "and values anew from their owners unless they are kept, gradients on their way home in "
          "float32.")
      .def_property_readonly("backward_bytes_received", &of_backward<&PassCost::bytes_received>,
                             "Bytes that the backward pass receives for the step.")
      .def_property_readonly("backward_gradient_bytes_sent",
                             &of_backward<&PassCost::gradient_bytes_sent>,
                             "Of these, bytes of float32 gradients, after the step's tiles.")
      .def_property_readonly("backward_gradient_bytes_received",
                             &of_backward<&PassCost::gradient_bytes_received>,
                             "Of those received, bytes of float32 gradients, which are added.");
}

void bind_bytes_of_passes(py::class_<CostOfPasses>& cost) {
  const auto of_ranks = [&](const char* name, auto get, const char* doc) {
    cost.def_property_readonly(
        name, [get](const CostOfPasses& c) { return per_rank(get(c)); }, doc);
  };
  using Cost = CostOfPasses;
  of_ranks(
      "result_bytes_sent", [](const Cost& c) { return c.result_bytes_sent; },
      "[cp_size] bytes of out and float32 lse sent home after the last step.");
  of_ranks(
      "result_bytes_received", [](const Cost& c) { return c.result_bytes_received; },
      "[cp_size] bytes of out and float32 lse that come home after the last step.");
  of_ranks(
      "workspace_bytes", [](const Cost& c) { return c.forward_pass.workspace_bytes; },
      "[cp_size] memory of the forward pass beside the rank's own arrays, float32 results "
      "included, where each rank runs alone by its schedule.");
  of_ranks(
      "backward_workspace_bytes", [](const Cost& c) { return c.backward_pass.workspace_bytes; },
      "[cp_size] memory of the backward pass beside the rank's own arrays, likewise.");
  of_ranks(
      "kept_bytes", [](const Cost& c) { return c.forward_pass.kept_bytes; },
      "[cp_size] memory beside these from the forward to the backward pass: keys and values that "
      "came from other ranks, with keep_kv=True, else 0.");
  bind_bytes_of_backward(cost);
}

void bind_ratios(py::class_<CostOfPasses>& cost) {
  cost.def_property_readonly("imbalance", &CostOfPasses::imbalance,
                             "max / mean over the ranks of their pairs; 1 is perfect.")
      .def_property_readonly("fill", &CostOfPasses::fill,
                             "Pairs over the area of all blocks; 1 is perfect.")
      .def_property_readonly(
          "fill_per_step", &fill_per_step,
          "float64: pairs over the area of the blocks there; 1 where nothing is computed.")
      .def_property_readonly(
          "block_size", [](const CostOfPasses& c) { return Rows(c.block_size.q, c.block_size.k); },
          "(query rows, key rows) of a block.");
}

}  // namespace

ElementSizes sizes_from(int head_dim, std::optional<int> head_dim_v, int bytes_per_element) {
  require(head_dim >= 1 && head_dim_v.value_or(1) >= 1 && bytes_per_element >= 1,
          "head_dim=", head_dim, ", head_dim_v=", head_dim_v.value_or(head_dim),
          ", bytes_per_element=", bytes_per_element, "; all must be at least 1");
  return {head_dim, head_dim_v.value_or(head_dim), bytes_per_element};
}

void bind_cost(py::module_& m, PlanClass& plan) {
  py::class_<CostOfPasses> cost(m, "PlanCost", R"doc(
What the passes of a plan cost. Arrays are read-only, int64, [cp_size, num_steps] unless said.
The backward pass computes the same tiles as the forward pass: pairs, blocks and the like stand once.
)doc");
  cost.def(py::init<const CostOfPasses&>(), "counts"_a, "A copy of the counts of a plan.");
  cost.def("__repr__", &told);
  bind_counts_of_steps(cost);
  bind_bytes_of_passes(cost);
  bind_ratios(cost);
  plan.def(
      "_cost",
      strictly<"head_dim", "head_dim_v", "bytes_per_element", "block_size", "keep_kv">(&cost_of),
      py::kw_only(), "head_dim"_a = 128, "head_dim_v"_a = py::none(), "bytes_per_element"_a = 2,
      "block_size"_a = Rows(128, 128), "keep_kv"_a = false,
      "Work, traffic and memory of both passes; keep_kv as in Plan.attention_rank.");
}

}  // namespace ringside::bindings
