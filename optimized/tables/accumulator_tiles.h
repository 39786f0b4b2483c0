// Float32 accumulators [rows, heads, dim] in tiles of 8 rows x 8 columns of a head. A tile is what
// a warp of mma.sync holds in two registers a lane: it moves 256 neighbouring bytes at a time, not
// 32 of each of eight rows. Device code includes this file too.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside {

enum class AccumulatorLayout : uint8_t { rows, tiles };  // [rows, heads, dim], or as above

inline constexpr int kTileSide = 8, kTileCells = kTileSide * kTileSide;

// Rows for which there must be room: whole tiles.
RINGSIDE_HD inline int64_t rows_of_tiles(int64_t rows) {
  return (rows + kTileSide - 1) / kTileSide * kTileSide;
}

// Of column d of a row of a head; dim is a multiple of kTileSide. The next tile of the same rows
// and head, kTileSide columns on, lies kTileCells behind.
RINGSIDE_HD inline int64_t tiled_offset(int64_t row, int head, int d, int heads, int dim) {
  return (row / kTileSide * heads + head) * kTileSide * dim + d / kTileSide * kTileCells +
         row % kTileSide * kTileSide + d % kTileSide;
}

}  // namespace ringside
