// How wgmma is told where an operand lies in shared memory.
//
// Operands are tiles of rows of 128 bytes, as tensor maps with 128-byte swizzle lay them down at
// multiples of 1,024 bytes; a matrix of more columns is panels one behind the other. Either the 16
// that a product is deep are neighbours in a row ("along rows": K in Q K^T), or rows follow each
// other ("down rows": V in P V).
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside::hopper {

enum class Deep { along_rows, down_rows };

// The descriptor of a tile. panel_bytes: from a panel to the next, of tiles that are read down rows
// and are wider than 64 columns.
RINGSIDE_HD inline uint64_t tile_descriptor(uint32_t shared_address, uint32_t panel_bytes = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = 1024;  // bytes
  return kSwizzle128 | kEightRows >> 4 << 32 | uint64_t{panel_bytes >> 4} << 16 |
         (shared_address & 0x3ffff) >> 4;
}

// Bytes from the beginning of a tile to its slice number k, 16 deep.
template <Deep kDeep>
RINGSIDE_HD constexpr uint32_t slice_offset(int k, uint32_t panel_bytes) {
  if (kDeep == Deep::down_rows) return k * 16 * 128;
  return k / 4 * panel_bytes + k % 4 * 32;
}

// A descriptor so many bytes further on.
RINGSIDE_HD inline uint64_t moved(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace ringside::hopper
