// An array in device memory, as Python describes it, and the device it lies on.
#pragma once

#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/attention/kernel.h"
#include "optimized/device/error.h"
#include "reference/support/errors.h"

namespace ringside::bindings {

namespace py = pybind11;

// In Python a torch tensor, or a tuple of these (Described in ringside/_arrays/cuda.py).
struct DeviceArray {
  uintptr_t data = 0;
  std::string dtype;                    // NumPy's name, or torch's without "torch."
  std::vector<int64_t> shape, strides;  // in elements

  ElementType type() const {  // of what attention takes
    if (dtype == "float32") return ElementType::float32;
    if (dtype == "float16") return ElementType::float16;
    if (dtype == "bfloat16") return ElementType::bfloat16;
    throw py::type_error(concat("dtype ", dtype,
                                " on the device; expected float32, float16 or bfloat16. Convert "
                                "it, or pass NumPy arrays to backend=\"reference\""));
  }

  std::string shape_text() const {
    std::string text;
    for (const int64_t n : shape) text += concat(text.empty() ? "" : ", ", n);
    return "[" + text + "]";
  }
};

inline const std::string& name_of_dtype(const py::object& dtype) {
  static auto& known = *new std::vector<std::pair<PyObject*, std::string>>;  // as long as Python is
  for (const auto& [each, name] : known)
    if (each == dtype.ptr()) return name;
  std::string name = py::str(dtype);
  if (const std::string_view torch = "torch."; name.starts_with(torch)) name.erase(0, torch.size());
  return known.emplace_back(py::object(dtype).release().ptr(), std::move(name)).second;
}

inline std::vector<int64_t> dims(const py::tuple& numbers) {
  std::vector<int64_t> found;
  found.reserve(numbers.size());
  for (size_t k = 0; k < numbers.size(); ++k) {
    found.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(numbers.ptr(), k)));
    if (found.back() == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  return found;
}

// What a tensor says of itself. A Python object that says it would take longer than all answers.
inline DeviceArray array_of_tensor(const py::handle& tensor) {
  static PyObject *const data_ptr = PyUnicode_InternFromString("data_ptr"),
                         *const dtype = PyUnicode_InternFromString("dtype"),
                         *const shape = PyUnicode_InternFromString("shape"),
                         *const stride = PyUnicode_InternFromString("stride");
  const auto answer = [](PyObject* found) {
    if (found == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(found);
  };
  const auto call = [&](PyObject* method) {
    return answer(PyObject_CallMethodNoArgs(tensor.ptr(), method));
  };
  const auto ask = [&](PyObject* name) { return answer(PyObject_GetAttr(tensor.ptr(), name)); };
  return {call(data_ptr).cast<uintptr_t>(), name_of_dtype(ask(dtype)), dims(ask(shape)),
          dims(call(stride))};
}

class OnDevice {  // makes a device current, and the one before again
 public:
  explicit OnDevice(int device) {
    RINGSIDE_CUDA(cudaGetDevice(&before_));
    if (before_ == device) return;
    RINGSIDE_CUDA(cudaSetDevice(device));
    moved_ = true;
  }
  ~OnDevice() {
    if (moved_) static_cast<void>(cudaSetDevice(before_));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool moved_ = false;
};

void bind_cuda_thd(py::module_& m);
void bind_ranks(py::module_& m);

}  // namespace ringside::bindings

template <>
struct pybind11::detail::type_caster<ringside::bindings::DeviceArray> {
  PYBIND11_TYPE_CASTER(ringside::bindings::DeviceArray, const_name("DeviceArray"));

  bool load(handle given, bool) {
    using namespace ringside::bindings;
    try {
      if (PyTuple_Check(given.ptr())) {
        const auto said = reinterpret_borrow<tuple>(given);
        if (said.size() != 4) return false;
        value = {said[0].cast<uintptr_t>(), said[1].cast<std::string>(), dims(said[2]),
                 dims(said[3])};
      } else {
        value = array_of_tensor(given);
      }
      return true;
    } catch (const cast_error&) {
      return false;
    } catch (const error_already_set& error) {
      if (!error.matches(PyExc_AttributeError) && !error.matches(PyExc_TypeError)) throw;
      return false;
    }
  }
};
