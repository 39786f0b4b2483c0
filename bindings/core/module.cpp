#include "bindings/core/module.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "bindings/core/arguments.h"
#include "reference/attention/cpu_kernels.h"
#include "reference/support/errors.h"
#include "reference/verify/verify.h"

namespace ringside::bindings {

namespace py = pybind11;

namespace {

constexpr const char* kDoc = R"doc(
A plan that is not right; the message names the first offending row, message, tile or operation.

rank, step and tile say where, row and key which rows of the pack; each is None where the message
speaks of none.

>>> import json, ringside as rs
>>> wrong = json.loads(rs.plan(rs.PackedLayout([0, 4]), cp_size=2).to_json())
>>> del wrong["tables"]["tiles"]["rows"][0]
>>> try:
...     rs.Plan.from_json(json.dumps(wrong))
... except rs.PlanError as error:
...     print(error.row, error.key)
0 0
)doc";

struct Coordinate {
  const char* name;
  int At::*number;
  const char* doc;
};
constexpr Coordinate kCoordinates[] = {
    {"rank", &At::rank, "Whose step, message or rows; None where it is of no rank."},
    {"step", &At::step, "Of that rank, or None."},
    {"tile", &At::tile, "Among those of the step, or None."},
    {"row", &At::row, "Of the pack's queries, or None."},
    {"key", &At::key, "Row of the pack's keys, or None."},
};

// In the instance, where pickles find it.
std::string slot_of(const Coordinate& coordinate) { return std::string("_") + coordinate.name; }

py::object property_of(const Coordinate& coordinate) {
  const auto read = [slot = slot_of(coordinate)](const py::object& error) -> std::optional<int> {
    const py::object number = py::getattr(error, slot.c_str(), py::none());
    return number.is_none() ? std::nullopt : std::optional(number.cast<int>());
  };
  const py::cpp_function get(read, py::name(coordinate.name));
  return py::module_::import("builtins")
      .attr("property")(get, py::none(), py::none(), coordinate.doc);
}

py::object instance_of(const py::handle& type, const PlanError& error) {
  py::object instance = type(error.what());
  for (const Coordinate& coordinate : kCoordinates)
    if (const int number = error.at.*coordinate.number; number >= 0)
      py::setattr(instance, slot_of(coordinate).c_str(), py::int_(number));
  return instance;
}

void bind_plan_error(py::module_& m) {
  static py::handle type = py::exception<PlanError>(m, "PlanError", PyExc_RuntimeError).release();
  type.doc() = kDoc;
  for (const Coordinate& coordinate : kCoordinates)
    py::setattr(type, coordinate.name, property_of(coordinate));
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const PlanError& error) {
      PyErr_SetObject(type.ptr(), instance_of(type, error).ptr());
    }
  });
}

}  // namespace

void bind_errors(py::module_& m) {
  py::register_exception<InvalidArgument>(m, "InvalidArgument", PyExc_ValueError).doc() =
      "A ValueError whose message says what was got, what was expected and how to fix it.";
  py::register_exception<Unsupported>(m, "Unsupported", PyExc_RuntimeError).doc() =
      "Valid input that this build cannot compute; the message names the nearest supported choice.";
  bind_plan_error(m);
}

void bind_cpu_level(pybind11::module_& m) {
  cpu_level();  // a bad RINGSIDE_CPU_LEVEL is refused here, when the module is imported
  m.def(
      "cpu_level", [] { return cpu_level().name; },
      "The level of x86-64 whose code is in use; RINGSIDE_CPU_LEVEL chooses another.");
  m.def(
      "cpu_levels",
      [] {
        std::vector<std::string> names;
        for (const CpuLevel& level : cpu_levels())
          if (level.runs_here) names.push_back(level.name);
        return names;
      },
      "The levels that this build holds and this processor runs, narrowest first.");
}

}  // namespace ringside::bindings

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ half of ringside. Import ringside instead.";
  m.attr("__version__") = RINGSIDE_VERSION;
  m.attr("__cpu__") = RINGSIDE_CPU;
  ringside::bindings::bind_errors(m);
  ringside::bindings::bind_cpu_level(m);
  ringside::bindings::bind_layout(m);
  ringside::bindings::bind_mask(m);
  ringside::bindings::bind_segments(m);
  ringside::bindings::bind_options(m);
  ringside::bindings::bind_plan(m);
  ringside::bindings::bind_ranks(m);
  ringside::bindings::bind_attention(m);
  ringside::bindings::bind_thd(m);
  ringside::bindings::bind_arguments(m);
  ringside::bindings::name_wrong_arguments(m);
  ringside::bindings::name_wrong_arguments(m.attr("thd"));
}
