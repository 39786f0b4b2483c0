// Where pybind11 finds an argument missing, unknown or doubled it lists C++ signatures and every
// value; here that list is replaced by what Python says of its own functions.
#include "bindings/core/arguments.h"

namespace ringside::bindings {
namespace {

using Fast = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
using Plain = PyObject* (*)(PyObject*, PyObject*, PyObject*);

PyCFunction dispatcher = nullptr;  // pybind11's, the same for all functions of a module

bool is_list_of_signatures(const std::string& text) {
  return text.find("(): incompatible function arguments.") != std::string::npos ||
         text.find("(): incompatible constructor arguments.") != std::string::npos;
}

// Rewrites the error that pybind11 has set; any other goes on as it is.
void explain(const py::object& args, const py::object& kwargs) {
  py::error_already_set error;
  try {
    const auto text = py::str(error.value()).cast<std::string>();
    if (!error.matches(PyExc_TypeError) || !is_list_of_signatures(text)) return error.restore();
    const auto why = py::module_::import("ringside._arguments.signatures").attr("why_refused");
    PyErr_SetObject(PyExc_TypeError, why(text, args, kwargs).ptr());
  } catch (py::error_already_set& another) {
    another.restore();
  }
}

template <typename To, typename From>
To as(From function) {  // between types of functions
  return reinterpret_cast<To>(reinterpret_cast<void (*)()>(function));
}

PyObject* call_fast(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject* result = as<Fast>(dispatcher)(self, args, count, names);
  if (result != nullptr) return result;
  py::list positional;
  py::dict named;
  for (Py_ssize_t i = 0; i < count; ++i) positional.append(py::handle(args[i]));
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i)
    named[py::handle(PyTuple_GET_ITEM(names, i))] = py::handle(args[count + i]);
  explain(positional, named);
  return nullptr;
}

PyObject* call_plain(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* result = as<Plain>(dispatcher)(self, args, kwargs);
  if (result != nullptr) return result;
  explain(py::reinterpret_borrow<py::object>(args),
          kwargs == nullptr ? py::dict() : py::reinterpret_borrow<py::dict>(kwargs));
  return nullptr;
}

PyMethodDef* definition_of(py::handle function) {  // none, where it is no function of ours
  if (PyInstanceMethod_Check(function.ptr()))
    function = PyInstanceMethod_GET_FUNCTION(function.ptr());
  if (!PyCFunction_Check(function.ptr())) return nullptr;
  PyMethodDef* definition = reinterpret_cast<PyCFunctionObject*>(function.ptr())->m_ml;
  return definition->ml_meth == dispatcher ? definition : nullptr;
}

void rewire(const py::handle& value) {
  const bool is_static = py::isinstance<py::staticmethod>(value);
  PyMethodDef* definition = definition_of(is_static ? py::object(value.attr("__func__"))
                                                    : py::reinterpret_borrow<py::object>(value));
  if (definition == nullptr) return;
  const bool fast = (definition->ml_flags & METH_FASTCALL) != 0;  // since pybind11 3.1
  definition->ml_meth = fast ? as<PyCFunction>(&call_fast) : as<PyCFunction>(&call_plain);
}

}  // namespace

void name_wrong_arguments(const py::module_& m) {
  const py::cpp_function probe([] {});
  dispatcher = reinterpret_cast<PyCFunctionObject*>(probe.ptr())->m_ml->ml_meth;
  const auto members = [](const py::handle& x) {
    return py::dict(py::module_::import("builtins").attr("vars")(x));
  };
  for (const auto& [name, value] : members(m)) {
    rewire(value);
    if (py::isinstance<py::type>(value))
      for (const auto& [method, function] : members(value)) rewire(function);
  }
}

}  // namespace ringside::bindings
