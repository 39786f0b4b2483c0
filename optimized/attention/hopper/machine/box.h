// Where a box of rows lies in a ragged tensor map: a map of a whole buffer whose boxes end where
// the caller says, not only where the buffer does.
//
// Such a map has five dimensions, innermost first: columns, heads, and three of rows (z, y, x) with
// strides s, s and 2^35 - s bytes, s from row to row. At z = 2^30 - valid, y = row + valid and
// x = 2^30 the sum of the three is row * s modulo 2^64; and row `valid` of the box, where z reaches
// its size of 2^30, is out of bounds: loads give zeros from there on, stores and sums are dropped.
// So nothing of a map depends on lengths, and only rows in bounds are ever touched. Where rows of a
// box are out of bounds an H200 may look up where the map begins, though nothing is read there: a
// map must begin in device memory, and not some rows before.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside::hopper {

inline constexpr int kBoxRows = 64;         // where nothing else is said
inline constexpr int kSwizzledBytes = 128;  // of a row of a box, at most
inline constexpr int64_t kRaggedRows = int64_t{1} << 30;
inline constexpr int64_t kRaggedPlaces = 0x7fff0000;  // sizes of y and x
inline constexpr int64_t kRaggedWrap = int64_t{1} << 35;
inline constexpr int64_t kLargestStride = int64_t{1} << 40;  // in bytes, which it stays below

struct BoxCoordinates {
  int32_t column, head, z, y, x;
};

// Of the box that begins at `row`, of whose rows the first `valid` exist; 0 or less: none.
RINGSIDE_HD inline BoxCoordinates ragged_box(int column, int head, int row, int valid) {
  return {column, head, static_cast<int32_t>(kRaggedRows - valid), row + valid,
          static_cast<int32_t>(kRaggedRows)};
}

// How many of the rows of the box number `box` from `begin` on exist, if `end` is behind the last:
// 0 or less for none.
RINGSIDE_HD inline int rows_of_box(int begin, int end, int box) {
  return end - begin - box * kBoxRows;
}

// Bytes from the beginning of a tile in shared memory to 16 bytes of it, as a map with 128-byte
// swizzle lays them down: rows of 128 bytes, whose eight parts change places from row to row.
RINGSIDE_HD inline uint32_t swizzled(int row, int part) {
  return static_cast<uint32_t>(row * kSwizzledBytes + (part ^ row % 8) * 16);
}

}  // namespace ringside::hopper
