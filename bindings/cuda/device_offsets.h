// cu_seqlens on a device, and where to launch: what ringside.thd's functions share.
#pragma once

#include <cstdint>
#include <limits>

#include "bindings/cuda/device_array.h"
#include "optimized/tables/device_layout.h"

namespace ringside::bindings {

template <typename T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

struct Named {
  const DeviceArray& array;
  const char* name;
};

inline int num_rows_of(const DeviceArray& x, const char* name) {
  require(!x.shape.empty(), name, " is a scalar; expected an array of [rows, ...]");
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (x.shape[0] > kMost)
    throw Unsupported(concat(name, " has ", x.shape[0], " rows; nearest supported: ", kMost));
  return static_cast<int>(x.shape[0]);
}

inline bool is_wide(const Named& x) {
  if (x.array.dtype != "int32" && x.array.dtype != "int64")
    throw py::type_error(concat(x.name, " has dtype ", x.array.dtype,
                                " on the device; expected int32 or int64. Convert it"));
  return x.array.dtype == "int64";
}

inline DeviceOffsets offsets(const Named& x) {
  const bool wide = is_wide(x);
  require(x.array.shape.size() == 1 && x.array.shape[0] >= 1, x.name, " has shape ",
          x.array.shape_text(), "; expected [batch+1] offsets. Pass [0] for no sequences");
  require(x.array.shape[0] == 1 || x.array.strides[0] == 1, x.name,
          " is not dense in memory; expected consecutive numbers. Pass a contiguous copy");
  return {pointer<void>(x.array.data), num_rows_of(x.array, x.name), wide};
}

// Of arrays named cu_seqlens and cu_seqlens_padded.
inline DeviceLayout device_layout(const DeviceArray& valid, const DeviceArray& padded,
                                  int64_t num_rows) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  require(0 <= num_rows && num_rows <= kMost, "num_rows=", num_rows, "; expected 0 to ", kMost,
          ". Pass the rows of the packed array, x.shape[0]");
  const DeviceLayout layout{offsets({valid, "cu_seqlens"}), offsets({padded, "cu_seqlens_padded"}),
                            static_cast<int>(num_rows)};
  require(layout.valid.size == layout.padded.size, "cu_seqlens has ", layout.valid.size,
          " entries and cu_seqlens_padded has ", layout.padded.size,
          "; both must have [batch+1]. Pass one entry a sequence in each, plus the leading one");
  return layout;
}

struct DeviceStream {  // a device, and a stream of it
  int device;
  uintptr_t stream;
  cudaStream_t handle() const { return pointer<CUstream_st>(stream); }
};

void bind_cuda_thd_metadata(py::module_& thd);

}  // namespace ringside::bindings
