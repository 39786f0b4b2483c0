// Rows moved at memory speed on one device: reorders, valid rows, rows by segments, sums in
// float32.
//
// Everything is asynchronous on the given stream, reads nothing back and allocates nothing, and so
// may be captured in a graph. Whatever offsets and tables hold, nothing outside the arrays is read
// or written; a row that they send nowhere is left alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "optimized/device/types.h"
#include "optimized/tables/thd/row_maps.h"

namespace ringside::thd {

struct RowCopyArrays {  // of one array to move
  const void* from = nullptr;
  void* to = nullptr;
  int64_t from_pitch = 0, to_pitch = 0;  // bytes from one row to the next
  int64_t row_bytes = 0;
};

inline constexpr int kArraysPerLaunch = 16;  // more are launched in groups

// Maps come without a table. `table` has room for it, and is written first where there are more
// than a few sequences.
void reorder_rows(std::span<const RowCopyArrays> arrays, const ReorderMap& map, uint32_t* table,
                  cudaStream_t stream);

void copy_valid_rows(const RowCopyArrays& array, const ValidRowMap& map, cudaStream_t stream);

void move_rows(const RowCopyArrays& array, const SegmentMap& map, int64_t* table,
               cudaStream_t stream);

struct RowSumArrays {
  const void* from = nullptr;
  float* to = nullptr;                   // to += from
  int64_t from_pitch = 0, to_pitch = 0;  // elements from one row to the next
  int64_t row_elements = 0;
  ElementType type = ElementType::float32;  // of from
};
void add_rows(const RowSumArrays& array, const SegmentMap& map, int64_t* table,
              cudaStream_t stream);

}  // namespace ringside::thd
