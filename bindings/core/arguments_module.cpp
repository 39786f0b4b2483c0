// The strict conversions for the Python half, ringside._core.arguments: (x, name) -> x.
#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/module.h"
#include "reference/rows/mask.h"
#include "reference/rows/packed_layout.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

template <typename T>
T plain(const py::object& x, const std::string& name) {
  return converted<T>(x, name);
}

template <typename T>
py::object same(const py::object& x, const std::string& name) {
  static_cast<void>(bound<T>(x, name));
  return x;
}

DoubleArray floating_array(const py::object& x, const char* name) {
  return floating(as_array(x, name), name);
}

py::array_t<int32_t> int32_array(const py::object& x, const char* name) {
  return to_array(integers(x, name));
}

}  // namespace

void bind_arguments(py::module_& m) {
  py::module_ arguments =
      m.def_submodule("arguments", "An argument as what it must be, or a TypeError by its name.");
  arguments.def("integer", &plain<int64_t>, "x"_a, "name"_a)
      .def("int32", &plain<int>, "x"_a, "name"_a, "One that the library can count with.")
      .def("real", &plain<double>, "x"_a, "name"_a)
      .def("boolean", &plain<bool>, "x"_a, "name"_a)
      .def("text", &plain<std::string>, "x"_a, "name"_a)
      .def("array", &as_array, "x"_a, "name"_a, "As NumPy sees it, of any dtype, not masked.")
      .def("floating", &floating_array, "x"_a, "name"_a, "A float64 copy of floats in C order.")
      .def("integers", &int32_array, "x"_a, "name"_a, "A copy of one dimension.")
      .def("layout", &same<PackedLayout>, "x"_a, "name"_a)
      .def("mask", &same<Mask>, "x"_a, "name"_a);
}

}  // namespace ringside::bindings
