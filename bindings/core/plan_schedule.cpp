// What a rank does in a pass, as Python sees it.
#include <algorithm>
#include <memory>

#include "bindings/core/arguments.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/plan_views.h"
#include "reference/schedule/schedule.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

struct OperationView {
  std::shared_ptr<Schedule> schedule;
  int index;

  const Operation& get() const { return schedule->operations[index]; }
  const char* payload(const Block& block) const {
    return name(schedule->buffers[block.buffer].payload);
  }
};

py::tuple range(Range heads) { return py::make_tuple(heads.begin, heads.end); }

py::list messages(const OperationView& view, const std::vector<ScheduledMessage>& all) {
  py::list list;
  for (const auto& [peer, block] : all)
    list.append(py::dict("peer"_a = peer, "payload"_a = view.payload(block),
                         "buffer"_a = block.buffer, "row"_a = block.row, "rows"_a = block.rows,
                         "heads"_a = range(block.heads)));
  return list;
}

py::list buffers_of(const OperationView& view) {
  py::list buffers;
  const Operation& op = view.get();
  for (const int buffer :
       {op.from.buffer, op.to.buffer, op.queries, op.keys, op.query_sums, op.key_sums})
    if (buffer >= 0) buffers.append(buffer);
  return buffers;
}

std::vector<OperationView> schedule_of(const Plan& plan, int rank, bool backward, bool keep_kv) {
  require(0 <= rank && rank < plan.cp_size(), "rank=", rank, "; the plan has ranks 0 to ",
          plan.cp_size() - 1);
  auto schedule = std::make_shared<Schedule>(without_gil([&] {
    return make_schedule(plan, rank, backward ? Pass::backward : Pass::forward,
                         keep_kv ? KeepKv::yes : KeepKv::no);
  }));
  std::vector<OperationView> views;
  for (int i = 0; i < static_cast<int>(schedule->operations.size()); ++i)
    views.push_back({schedule, i});
  return views;
}

std::string text_of_operation(const OperationView& view) {
  const Operation& op = view.get();
  std::string text = concat("Operation(", view.index, ": ", name(op.kind), " of step ", op.step);
  for (const ScheduledMessage& m : op.sends)
    text += concat(", ", view.payload(m.block), " to ", m.peer);
  for (const ScheduledMessage& m : op.receives)
    text += concat(", ", view.payload(m.block), " from ", m.peer);
  if (op.to.buffer >= 0) text += concat(", ", view.payload(op.to));
  for (const int before : op.after) text += concat(", after ", before);
  return text + ")";
}

void bind_operation(py::module_& m) {
  py::class_<OperationView>(m, "Operation", R"doc(
One thing that a rank does in a pass; see Plan.schedule.

Operations of one stream run in order; an operation also waits for those of the other stream that
`after` names. Buffers are numbered within the schedule.
)doc")
      .def_property_readonly(
          "kind", [](const OperationView& o) { return name(o.get().kind); },
          "clear, exchange, copy, combine or compute.")
      .def_property_readonly(
          "stream",
          [](const OperationView& o) {
            return o.get().stream == Stream::compute ? "compute" : "exchange";
          },
          "compute or exchange.")
      .def_property_readonly(
          "step", [](const OperationView& o) { return o.get().step; }, "Of the plan.")
      .def_property_readonly(
          "after", [](const OperationView& o) { return o.get().after; },
          "Earlier operations of the other stream that it waits for.")
      .def_property_readonly(
          "sends", [](const OperationView& o) { return messages(o, o.get().sends); },
          "What an exchange sends: peer, payload, buffer, row, rows, heads.")
      .def_property_readonly(
          "receives", [](const OperationView& o) { return messages(o, o.get().receives); },
          "What an exchange receives, likewise.")
      .def_property_readonly("buffers", &buffers_of, "What any other operation reads and writes.")
      .def("__repr__", &text_of_operation);
}

}  // namespace

void bind_schedule(py::module_& m, PlanClass& plan) {
  bind_operation(m);
  plan.def("schedule", strictly<"rank", "backward", "keep_kv">(&schedule_of), "rank"_a,
           py::kw_only(), "backward"_a = false, "keep_kv"_a = false, R"doc(
What a rank does in a pass, beside the other ranks: a list of Operation.

The exchange before step s+1 is posted before the tiles of step s and runs under them. The backward
pass begins with the last step and fetches keys and values from their owners one step ahead.
verify() proves the schedules of all ranks: ends of messages agree, nothing deadlocks, and nothing
is written while it is read.

Args:
    rank: 0 to cp_size - 1.
    backward: the backward pass instead of the forward pass.
    keep_kv: of passes that keep keys and values, see Plan.attention_rank: a forward pass copies
        those of each step, and a backward pass fetches none.

>>> import ringside as rs
>>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
>>> for operation in plan.schedule(0):
...     print(operation)
Operation(0: clear of step 0, results)
Operation(1: exchange of step 1, keys to 1, keys from 1)
Operation(2: compute of step 0)
Operation(3: compute of step 1, after 1)
)doc");
}

}  // namespace ringside::bindings
