#include "bindings/core/module.h"

#include <pybind11/stl.h>

#include "bindings/core/arguments.h"
#include "reference/cpu_kernels.h"
#include "reference/errors.h"
#include "reference/verify.h"

namespace ringside::bindings {

void bind_errors(pybind11::module_& m) {
  namespace py = pybind11;
  py::register_exception<InvalidArgument>(m, "InvalidArgument", PyExc_ValueError).doc() =
      "A ValueError whose message says what was got, what was expected and how to fix it.";
  py::register_exception<Unsupported>(m, "Unsupported", PyExc_RuntimeError).doc() =
      "Valid input that this build cannot compute; the message names the nearest supported choice.";
  py::register_exception<PlanError>(m, "PlanError", PyExc_RuntimeError).doc() =
      "A plan that is not right; the message names the first offending row, message or tile.";
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
