// What a plan would cost and hold, before it is built.
#include <optional>
#include <string>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/plan_views.h"
#include "reference/estimate/estimate.h"
#include "reference/support/errors.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

CostOfPasses estimate_of(const PackedLayout& layout_q, const std::optional<PackedLayout>& layout_k,
                         const Mask& mask, std::optional<int> cp_size, const py::object& partition,
                         const py::object& partition_k, const std::string& comm,
                         std::optional<int> a2a_size, std::optional<int> stages, int num_heads,
                         std::optional<int> num_kv_heads, int head_dim,
                         std::optional<int> head_dim_v, int bytes_per_element,
                         std::pair<int, int> block_size, bool of_ranks) {
  const Problem problem{layout_q, layout_k.value_or(layout_q), mask, num_heads,
                        num_kv_heads.value_or(num_heads)};
  const ElementSizes sizes = sizes_from(head_dim, head_dim_v, bytes_per_element);
  const Placement placement = placement_from(problem, partition, partition_k, cp_size);
  Transport transport = transport_from(comm, a2a_size, stages);
  if (of_ranks) transport.order = StackOrder::of_ranks;
  return without_gil([&] {
    return estimate(problem, placement, transport, sizes, {block_size.first, block_size.second});
  });
}

}  // namespace

void bind_estimate(py::module_& m) {
  m.def("estimate",
        strictly<"layout_q", "layout_k", "mask", "cp_size", "partition", "partition_k", "comm",
                 "a2a_size", "stages", "num_heads", "num_kv_heads", "head_dim", "head_dim_v",
                 "bytes_per_element", "block_size", "of_ranks">(&estimate_of),
        "layout_q"_a, "layout_k"_a = py::none(), py::kw_only(), "mask"_a = Mask::causal(),
        "cp_size"_a = py::none(), "partition"_a = "zigzag", "partition_k"_a = py::none(),
        "comm"_a = "p2p", "a2a_size"_a = py::none(), "stages"_a = py::none(), "num_heads"_a = 1,
        "num_kv_heads"_a = py::none(), "head_dim"_a = 128, "head_dim_v"_a = py::none(),
        "bytes_per_element"_a = 2, "block_size"_a = std::pair(128, 128), "of_ranks"_a = false,
        "See ringside.estimate. of_ranks: gathered rows lie one rank below the other, as "
        "plans had it that were measured before 22 November 2026.");
}

}  // namespace ringside::bindings
