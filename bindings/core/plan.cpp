#include "reference/plan/plan.h"

#include <pybind11/operators.h>

#include <optional>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/module.h"
#include "bindings/core/plan_views.h"
#include "reference/estimate/plan_size.h"
#include "reference/partition/partition.h"
#include "reference/plan/plan_tables.h"
#include "reference/schedule/verify/verify_schedule.h"
#include "reference/support/errors.h"
#include "reference/transport/transport.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;
using Shards = std::vector<Shard>;

// --- construction ---

Shards stacked(Shards shards, const char* name) {  // fills in rows left at -1
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    int64_t next = 0;
    for (Segment& s : shards[rank]) {
      require(std::in_range<int>(next), name, "[", rank, "] lists segments down to row ", next,
              "; expected 0 to 2147483647. Own every row once, or split the pack");
      if (s.row == -1) s.row = static_cast<int>(next);
      next = int64_t{s.row} + s.len;
    }
  }
  return shards;
}

Shards shards_from(const py::object& x, const char* name, const char* or_else) {
  py::detail::make_caster<Shards> caster;
  if (!is_list(x) || !caster.load(x, false))
    throw py::type_error(concat(name, " is a ", py::str(py::type::of(x)).cast<std::string>(),
                                "; expected ", or_else, "a list of Segment for every rank"));
  return stacked(py::detail::cast_op<Shards&&>(std::move(caster)), name);
}

// Of a partition of the user's own: not that of another.
const std::string& checked_name(const std::string& name) {
  for (const NamedPartition& known : partitions())
    require(name != known.name, "name=\"", name,
            "\" is a partition of the table. Call your own something else");
  require(!name.empty(), "name=\"\" says nothing. Leave it out");
  return name;
}

}  // namespace

Placement placement_from(const Problem& problem, const py::object& partition,
                         const py::object& partition_k, std::optional<int> cp_size,
                         const std::optional<std::string>& own_name) {
  if (py::isinstance<py::str>(partition)) {
    require(partition_k.is_none(), "partition_k goes with your own segments only; got partition=\"",
            partition.cast<std::string>(), "\" too. Leave partition_k out");
    require(cp_size.has_value(), "cp_size is missing; expected the number of ranks");
    const auto name = partition.cast<std::string>();
    return without_gil([&] { return place(problem, name, *cp_size); });
  }
  const Shards q = shards_from(partition, "partition", "a name (see ringside.PARTITIONS) or ");
  require(!cp_size || *cp_size == static_cast<int>(q.size()), "cp_size=", cp_size.value_or(0),
          " but the partition lists segments for ", q.size(), " ranks. Leave cp_size out");
  require(!partition_k.is_none() || problem.layout_q == problem.layout_k,
          "layout_k differs from layout_q; pass partition_k, the segments of the keys, too");
  Placement own{q, partition_k.is_none() ? q : shards_from(partition_k, "partition_k", "")};
  if (own_name) own.name = checked_name(*own_name);
  return own;
}

Transport transport_from(const std::string& comm, std::optional<int> a2a_size,
                         std::optional<int> stages) {
  require(!a2a_size || *a2a_size >= 1, "a2a_size=", a2a_size.value_or(0),
          "; expected a divisor of cp_size");
  return {comm, a2a_size.value_or(0), stages};
}

namespace {

std::shared_ptr<Plan> make_plan(const PackedLayout& layout_q,
                                const std::optional<PackedLayout>& layout_k, const Mask& mask,
                                std::optional<int> cp_size, const py::object& partition,
                                const py::object& partition_k,
                                const std::optional<std::string>& name, const std::string& comm,
                                std::optional<int> a2a_size, std::optional<int> stages,
                                int num_heads, std::optional<int> num_kv_heads, int64_t max_tiles) {
  const Problem problem{layout_q, layout_k.value_or(layout_q), mask, num_heads,
                        num_kv_heads.value_or(num_heads)};
  const Placement placement = placement_from(problem, partition, partition_k, cp_size, name);
  const Transport transport = transport_from(comm, a2a_size, stages);
  return without_gil([&] {
    check_tiles(problem, placement, transport, max_tiles);
    return std::make_shared<Plan>(build_plan(problem, placement, transport));
  });
}

// --- rows ---

struct Sharding {  // of the query or of the key rows: whose are which
  const PackedLayout& layout;
  const std::vector<Buffer>& homes;
};

Sharding sharding_of(const Plan& plan, const std::string& side) {
  if (side == "q") return {plan.problem.layout_q, plan.home_q};
  if (side == "k") return {plan.problem.layout_k, plan.home_kv};
  throw InvalidArgument(concat("side=\"", side, "\" is unknown; expected one of \"q\", \"k\""));
}

void check_rank(const Plan& plan, int rank) {
  require(0 <= rank && rank < plan.cp_size(), "rank=", rank, "; expected 0 to ",
          plan.cp_size() - 1);
}

const Shard& home_shard(const Plan& plan, int rank, const std::string& side) {
  check_rank(plan, rank);
  return plan.shard(sharding_of(plan, side).homes[rank]);
}

py::array_t<int32_t> row_indices(const Plan& plan, int rank, const std::string& side) {
  return to_array(global_rows(sharding_of(plan, side).layout, home_shard(plan, rank, side)));
}

py::array_t<int32_t> position_ids(const Plan& plan, int rank, const std::string& side) {
  std::vector<int32_t> positions;
  for (const Segment& s : home_shard(plan, rank, side))
    for (int i = 0; i < s.len; ++i) positions.push_back(s.position(i));
  return to_array(positions);
}

py::object shard_rows(const Plan& plan, const py::object& x, int rank, const std::string& side) {
  const py::array array = as_array(x, "x");
  const int rows = sharding_of(plan, side).layout.num_rows();
  require(array.ndim() >= 1 && array.shape(0) == rows, "x has shape ", shape_of(array),
          "; expected ", rows, " rows on its first axis");
  return array[row_indices(plan, rank, side)];
}

py::object unshard_rows(const Plan& plan, const py::sequence& arrays, const std::string& side) {
  require(static_cast<int>(py::len(arrays)) == plan.cp_size(), "got ", py::len(arrays),
          " parts; expected one for each of the ", plan.cp_size(), " ranks");
  const auto parts = parts_of(arrays, "parts", "part");
  py::object whole = room_for(parts, sharding_of(plan, side).layout.num_rows());
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const auto rows = row_indices(plan, rank, side);
    require(parts[rank].shape(0) == rows.size(), "part ", rank, " has shape ",
            shape_of(parts[rank]), "; rank ", rank, " owns ", rows.size(), " rows");
    whole[rows] = parts[rank];
  }
  return whole;
}

std::vector<Shard> segments_of(const std::string& name, const PackedLayout& layout, int cp_size,
                               const Mask& mask) {
  return without_gil([&] { return place({layout, layout, mask, 1, 1}, name, cp_size).q; });
}

py::dict partition_table() {
  py::dict table;
  for (const NamedPartition& p : partitions())
    table[p.name] =
        py::dict("summary"_a = p.summary, "balances_causal"_a = p.balances_causal,
                 "of_stream"_a = p.rule.of_stream, "closed_form"_a = p.rule.is_closed_form());
  return table;
}

py::dict comm_table() {
  py::dict table;
  for (const NamedTransport& t : transports())
    table[t.name] =
        py::dict("summary"_a = t.summary, "moves_whole_buffers"_a = t.moves_whole_buffers);
  return table;
}

void bind_construction(PlanClass& plan) {
  plan.def(
      py::init(
          strictly<"layout_q", "layout_k", "mask", "cp_size", "partition", "partition_k", "name",
                   "comm", "a2a_size", "stages", "num_heads", "num_kv_heads", "max_tiles">(
              &make_plan)),
      "layout_q"_a, "layout_k"_a = py::none(), py::kw_only(), "mask"_a = Mask::causal(),
      "cp_size"_a = py::none(), "partition"_a = "zigzag", "partition_k"_a = py::none(),
      "name"_a = py::none(), "comm"_a = "p2p", "a2a_size"_a = py::none(), "stages"_a = py::none(),
      "num_heads"_a = 1, "num_kv_heads"_a = py::none(), "max_tiles"_a = kMaxTiles);
}

void bind_fields(PlanClass& plan) {
  plan.def_property_readonly("layout_q", [](const Plan& p) { return p.problem.layout_q; })
      .def_property_readonly("layout_k", [](const Plan& p) { return p.problem.layout_k; })
      .def_property_readonly("mask", [](const Plan& p) { return p.problem.mask; })
      .def_property_readonly("num_heads", [](const Plan& p) { return p.problem.num_heads; })
      .def_property_readonly("num_kv_heads", [](const Plan& p) { return p.problem.num_kv_heads; })
      .def_readonly("partition", &Plan::partition)
      .def_readonly("comm", &Plan::comm)
      .def_property_readonly("cp_size", &Plan::cp_size)
      .def_property_readonly("num_steps", &Plan::num_steps);
}

void bind_steps(PlanClass& plan) {
  plan.def("shards_q",
           strictly<"rank">([](const Plan& p, int rank) { return home_shard(p, rank, "q"); }),
           "rank"_a, "The segments of q that a rank owns, in row order.")
      .def("shards_k",
           strictly<"rank">([](const Plan& p, int rank) { return home_shard(p, rank, "k"); }),
           "rank"_a, "The segments of k and v that a rank owns, in row order.")
      .def("steps", strictly<"rank">([](const std::shared_ptr<Plan>& p, int rank) {
             check_rank(*p, rank);
             std::vector<StepView> steps;
             const auto keys = std::make_shared<ResidentKeys>(p);
             for (int i = 0; i < p->num_steps(); ++i) steps.push_back({p, rank, i, keys});
             return steps;
           }),
           "rank"_a, "What a rank does, step by step.");
}

void bind_rows(PlanClass& plan) {
  plan.def("_row_indices", strictly<"rank", "side">(&row_indices), "rank"_a, py::kw_only(),
           "side"_a = "q", "[rows of the rank] int32: the global row of each of its rows.")
      .def("_position_ids", strictly<"rank", "side">(&position_ids), "rank"_a, py::kw_only(),
           "side"_a = "q",
           "[rows of the rank] int32: the position of each of its rows in its sequence.")
      .def("_shard", strictly<"x", "rank", "side">(&shard_rows), "x"_a, "rank"_a, py::kw_only(),
           "side"_a = "q", "The rows of x that a rank owns, in its order.")
      .def("_unshard", strictly<"parts", "side">(&unshard_rows), "parts"_a, py::kw_only(),
           "side"_a = "q", "The global array from every rank's part; the inverse of shard.");
}

// What is known by name.
void bind_names(py::module_& m) {
  const auto names = [](const auto& table) {
    py::list all;
    for (const auto& entry : table) all.append(entry.name);
    return py::tuple(all);
  };
  py::dict columns;
  PlanTables tables;
  for (size_t i = 0; i < tables.all().size(); ++i)
    columns[kTableNames[i]] = tables.all()[i]->columns;
  m.attr("TABLE_COLUMNS") = columns;
  m.def("partition", strictly<"name", "layout", "cp_size", "mask">(&segments_of), "name"_a,
        "layout"_a, "cp_size"_a, "mask"_a, "See ringside.partition.");
  m.def("check_cp_size", strictly<"cp_size">(&check_cp_size), "cp_size"_a,
        "Raises ValueError for no rank, and for more than memory holds one step of.");
  m.attr("PARTITIONS") = names(partitions());
  m.attr("PARTITION_TABLE") = partition_table();
  m.attr("COMMS") = names(transports());
  m.attr("COMM_TABLE") = comm_table();
}

}  // namespace

void bind_plan(py::module_& m) {
  PlanClass plan(m, "Plan", "See ringside.Plan.");
  bind_construction(plan);
  bind_tables(plan);
  bind_fields(plan);
  bind_steps(plan);
  bind_rows(plan);
  plan.def(
          "verify", [](const Plan& p) { return without_gil([&] { return verify_all(p); }); },
          "Proves the plan and its schedules.")
      .def(py::self == py::self);
  bind_cost(m, plan);
  bind_schedule(m, plan);
  bind_runs(plan);
  bind_estimate(m);
  bind_names(m);
}

}  // namespace ringside::bindings
