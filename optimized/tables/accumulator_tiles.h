// Float32 accumulators [rows, heads, dim] in tiles of 8 rows x 8 columns of a head. A tile is what
// a warp of mma.sync holds in two registers a lane: it moves 256 neighbouring bytes at a time, not
// 32 of each of eight rows. Device code includes this file too.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside {

enum class AccumulatorLayout : uint8_t {
  rows,       // [rows, heads, dim]
  tiles,      // as above
  fragments,  // rows, with the columns of each fragment in the order of fragment_place()
};

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

// Where column d of a row lies in fragments, and, as well, which column lies in place d. Of every 8
// columns, each of four lanes holds two neighbouring ones of what wgmma and mma.sync compute: what
// it holds of 32 columns comes one after the other, and leaves as two pieces of 16 bytes.
inline constexpr int kFragment = 32;  // columns, of which dim is a multiple
RINGSIDE_HD constexpr int fragment_place(int d) {
  return d / kFragment * kFragment + d % 8 / 2 * 8 + d % kFragment / 8 * 2 + d % 2;
}

}  // namespace ringside
