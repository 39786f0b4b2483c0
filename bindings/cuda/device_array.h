// An array in device memory, as Python describes it, and the device it lies on.
#pragma once

#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "optimized/attention/kernel.h"
#include "optimized/device/error.h"
#include "reference/support/errors.h"

namespace ringside::bindings {

namespace py = pybind11;

struct DeviceArray {
  uintptr_t data = 0;
  std::string dtype;                    // NumPy's name, or torch's
  std::vector<int64_t> shape, strides;  // in elements

  DeviceArray(uintptr_t pointer, std::string dtype_, std::vector<int64_t> shape_,
              std::vector<int64_t> strides_)
      : data(pointer),
        dtype(std::move(dtype_)),
        shape(std::move(shape_)),
        strides(std::move(strides_)) {}

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
