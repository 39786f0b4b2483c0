// How rows are cut into equal work: by bytes, not by row or sequence.
//
// All rows that move, end to end, are a stretch of units of 16 bytes, or of 8, 4, 2 or 1 where rows
// or pointers ask for it. A block of threads takes a tile of it: a part of a row, or several rows.
// Device code includes this file too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside::thd {

// Tuned together: bytes in flight, and blocks on a multiprocessor. Of the H200's own copy rate, 16
// x 4,096 rows of 16 x 64 bfloat16 to 8 ranks, and 16,384 ragged sequences of 16 heads: 0.94 and
// 0.85; 128 x 4 units 0.93 and 0.84, 128 x 2 0.85 and 0.83, 256 x 4 0.88 and 0.83, 512 x 2 0.90 and
// 0.80.
inline constexpr int kRowThreads = 128, kRowUnroll = 3;
inline constexpr int kTileUnits = kRowThreads * kRowUnroll;

// One array of a launch.
struct RowArray {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t from_pitch = 0, to_pitch = 0;  // bytes from one row to the next
  int from_unit = 16, to_unit = 16;      // bytes of a unit; they differ where the dtype does
  int units_of_row = 1;
  int step_rows = 0, step_units = 0;  // how far kRowThreads units are
  int64_t units = 0, tiles = 0;       // of all rows

  RINGSIDE_HD void cut(int64_t rows, int units_of_each) {
    units_of_row = units_of_each;
    step_rows = kRowThreads / units_of_row;
    step_units = kRowThreads % units_of_row;
    units = rows * units_of_row;
    tiles = (units + kTileUnits - 1) / kTileUnits;
  }
};

struct RowTile {
  int64_t row = 0;          // its first
  int unit = 0;             // of that row, where it begins
  int units = 0, rows = 0;  // how many it has, and touches: at most kTileUnits

  RINGSIDE_HD static RowTile of(const RowArray& array, int64_t tile) {
    const int64_t begin = tile * kTileUnits, left = array.units - begin;
    RowTile t;
    t.row = begin / array.units_of_row;
    t.unit = static_cast<int>(begin - t.row * array.units_of_row);
    t.units = static_cast<int>(left < kTileUnits ? left : kTileUnits);
    t.rows = (t.unit + t.units - 1) / array.units_of_row + 1;
    return t;
  }
};

// A thread's units of a tile: every kRowThreads-th, so that neighbours lie side by side.
struct UnitWalk {
  int row, unit;  // row: counted from the tile's first

  RINGSIDE_HD UnitWalk(const RowArray& array, const RowTile& tile, int thread) {
    row = (tile.unit + thread) / array.units_of_row;
    unit = tile.unit + thread - row * array.units_of_row;
  }
  RINGSIDE_HD void next(const RowArray& array) {
    row += array.step_rows;
    unit += array.step_units;
    if (unit < array.units_of_row) return;
    unit -= array.units_of_row;
    ++row;
  }
};

// The widest unit that divides all of these.
RINGSIDE_HD inline int widest_unit(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
  const uint64_t all = a | b | c | d | e | 16;
  return static_cast<int>(all & (~all + 1));
}

}  // namespace ringside::thd
