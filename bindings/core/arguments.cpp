#include "bindings/core/arguments.h"

#include <cstring>

#include "bindings/core/arrays.h"

namespace ringside::bindings {
namespace {

bool is_numpy_bool(const py::handle& x) {
  return std::strncmp(Py_TYPE(x.ptr())->tp_name, "numpy.bool", 10) == 0;
}

// x.__index__(), or a refusal; an exception that is not about the kind of x goes on.
py::int_ index_of(const py::handle& x, const std::string& name) {
  if (PyLong_CheckExact(x.ptr())) return py::reinterpret_borrow<py::int_>(x);
  const std::string expected = "an integer. Pass int(" + name + ") if nothing is lost by it";
  if (PyBool_Check(x.ptr()) || is_numpy_bool(x) || !PyIndex_Check(x.ptr()) || is_masked(x))
    refuse_kind(x, name, expected);
  PyObject* index = PyNumber_Index(x.ptr());
  if (index != nullptr) return py::reinterpret_steal<py::int_>(index);
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
  PyErr_Clear();
  refuse_kind(x, name, expected);
}

std::string digits(const py::int_& x) {  // Python refuses to write out very long ones
  const auto bits = x.attr("bit_length")().cast<int64_t>();
  if (bits > 128) return concat("an integer of ", bits, " bits");
  return py::str(x).cast<std::string>();
}

std::string power(int64_t limit) {
  if (limit == std::numeric_limits<int32_t>::max()) return "2**31-1";
  if (limit == std::numeric_limits<int32_t>::min()) return "-2**31";
  if (limit == std::numeric_limits<int64_t>::max()) return "2**63-1";
  if (limit == std::numeric_limits<int64_t>::min()) return "-2**63";
  return concat(limit);
}

bool holds_one_number(const py::handle& x) {  // of NumPy's, neither hidden nor complex
  if (!py::isinstance<py::array>(x) || is_masked(x)) return false;
  const auto array = py::reinterpret_borrow<py::array>(x);
  return array.ndim() == 0 && std::strchr("fiu", array.dtype().kind()) != nullptr;
}

bool is_real(const py::handle& x) {
  if (PyBool_Check(x.ptr()) || is_numpy_bool(x)) return false;
  if (PyFloat_Check(x.ptr()) || PyLong_Check(x.ptr()) || holds_one_number(x)) return true;
  const auto numpy = py::module_::import("numpy");
  return py::isinstance(x, numpy.attr("floating")) || py::isinstance(x, numpy.attr("integer"));
}

}  // namespace

std::string kind_of(const py::handle& x) {
  if (x.is_none()) return "None";
  if (is_masked(x)) return "a masked array";
  const py::type type = py::type::of(x);
  auto kind = py::str(type.attr("__qualname__")).cast<std::string>();
  const auto module = py::str(type.attr("__module__")).cast<std::string>();
  if (module != "builtins") kind = module + "." + kind;
  if (py::isinstance<py::array>(x))
    kind += concat(" of dtype ", py::str(x.attr("dtype")).cast<std::string>(), " and shape ",
                   py::str(x.attr("shape")).cast<std::string>());
  return (std::strchr("aeiou", kind[0]) != nullptr ? "an " : "a ") + kind;
}

void refuse_kind(const py::handle& x, const std::string& name,
                 const std::string& expected_and_fix) {
  throw py::type_error(concat(name, " is ", kind_of(x), "; expected ", expected_and_fix));
}

int64_t integer(const py::handle& x, const std::string& name, int64_t least, int64_t most) {
  const py::int_ index = index_of(x, name);
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow == 0 && least <= value && value <= most) return value;
  throw InvalidArgument(concat(name, "=", digits(index), "; expected an integer from ",
                               power(least), " to ", power(most)));
}

uint64_t unsigned_integer(const py::handle& x, const std::string& name) {
  const py::int_ index = index_of(x, name);
  const uint64_t value = PyLong_AsUnsignedLongLong(index.ptr());
  if (PyErr_Occurred() == nullptr) return value;
  PyErr_Clear();
  throw InvalidArgument(concat(name, "=", digits(index), "; expected 0 to 2**64-1"));
}

double real(const py::handle& x, const std::string& name) {
  if (!is_real(x)) refuse_kind(x, name, "a number. Pass a float, of Python's or NumPy's");
  const double value = PyFloat_AsDouble(x.ptr());
  if (value != -1 || PyErr_Occurred() == nullptr) return value;
  if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw py::error_already_set();
  PyErr_Clear();
  throw InvalidArgument(concat(name, " is an integer beyond float64; expected a number in it"));
}

bool is_list(const py::handle& x) {
  if (!PySequence_Check(x.ptr()) || PyUnicode_Check(x.ptr()) || PyBytes_Check(x.ptr()) ||
      is_masked(x))
    return false;
  const bool has_length = PySequence_Size(x.ptr()) >= 0;
  if (!has_length) PyErr_Clear();  // an array of no dimension
  return has_length;
}

bool boolean(const py::handle& x, const std::string& name) {
  if (!PyBool_Check(x.ptr()) && !is_numpy_bool(x)) refuse_kind(x, name, "True or False");
  return PyObject_IsTrue(x.ptr()) == 1;
}

std::string text(const py::handle& x, const std::string& name) {
  if (!PyUnicode_Check(x.ptr())) refuse_kind(x, name, "a str");
  return py::reinterpret_borrow<py::str>(x);
}

}  // namespace ringside::bindings
