// What lies in device memory: element types, and matrices of rows of heads.
#pragma once

#include <cstdint>

namespace ringside {

enum class ElementType : int8_t { float32, float16, bfloat16 };

struct DeviceMatrix {  // one operand, [rows, heads, dim], dim contiguous
  void* data = nullptr;
  int64_t row_stride = 0;  // in elements; may exceed 2^31 bytes in total
  int64_t head_stride = 0;
  int64_t rows = 0;  // from `data` on; nothing behind them may be touched
};

}  // namespace ringside
