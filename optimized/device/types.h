// What lies in device memory: element types, and matrices of rows of heads.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside {

enum class ElementType : int8_t { float32, float16, bfloat16 };

struct DeviceMatrix {  // one operand, [rows, heads, dim], dim contiguous
  void* data = nullptr;
  int64_t row_stride = 0;  // in elements; may exceed 2^31 bytes in total
  int64_t head_stride = 0;
  int64_t rows = 0;  // from `data` on; nothing behind them may be touched
};

struct DeviceScalars {  // one float32 for every row and head
  float* data = nullptr;
  int64_t row_stride = 0, head_stride = 0;

  // [rows, heads], as rows are moved.
  static DeviceScalars by_row(float* data, int heads) { return {data, heads, 1}; }
  // [heads, rows], as blocks of a head's rows are read.
  static DeviceScalars by_head(float* data, int64_t rows) { return {data, 1, rows}; }

  RINGSIDE_HD float& of(int64_t row, int head) const {
    return data[row * row_stride + head * head_stride];
  }
};

}  // namespace ringside
