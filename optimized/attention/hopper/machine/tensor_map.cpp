#include "optimized/attention/hopper/machine/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

namespace ringside::hopper {
namespace {

using Encode = PFN_cuTensorMapEncodeTiled_v12000;

// By the runtime: nothing links the driver.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // not the next call's
    return nullptr;
  }
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
}

Encode encode() {
  static const Encode kFunction = find_encode();
  return kFunction;
}

int64_t bytes_of(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

CUtensorMapDataType data_type(ElementType type) {
  switch (type) {
    case ElementType::float16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case ElementType::bfloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case ElementType::float32:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

bool fits(int64_t bytes, int64_t below) { return bytes > 0 && bytes < below && bytes % 16 == 0; }

}  // namespace

bool driver_makes_maps() { return encode() != nullptr; }

bool fits_a_map(const DeviceMatrix& matrix, const MapShape& shape) {
  const int64_t bytes = bytes_of(shape.type);
  return reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 &&
         fits(matrix.row_stride * bytes, kRaggedWrap) &&
         (shape.heads == 1 || fits(matrix.head_stride * bytes, kLargestStride));
}

bool make_map(CUtensorMap& map, const DeviceMatrix& matrix, const MapShape& shape, int box_rows) {
  if (!driver_makes_maps() || !fits_a_map(matrix, shape)) return false;
  const int64_t bytes = bytes_of(shape.type), row = matrix.row_stride * bytes;
  const int64_t head = shape.heads == 1 ? row : matrix.head_stride * bytes;
  const auto wide = [](int64_t x) { return static_cast<cuuint64_t>(x); };
  const cuuint64_t sizes[] = {wide(shape.dim), wide(shape.heads), wide(kRaggedRows),
                              wide(kRaggedPlaces), wide(kRaggedPlaces)};
  const cuuint64_t strides[] = {wide(head), wide(row), wide(row), wide(kRaggedWrap - row)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kSwizzledBytes / bytes), 1,
                            static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  return encode()(&map, data_type(shape.type), 5, matrix.data, sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace ringside::hopper
