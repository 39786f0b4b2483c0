// Two query segments of a sequence that lie one below the other in memory, as a rank's two chunks
// of a zigzag do, and meet the same keys: kernels may take them as one, with a gap of positions.
#pragma once

#include <cstdint>

#include "reference/rows/seen_rows.h"
#include "reference/rows/segment.h"
#include "reference/support/host_device.h"

namespace ringside {

enum class Neighbours : uint8_t {
  apart,
  joined,  // items of queries where that makes fewer blocks of rows; those that keys meet, all
};

// Whether b goes on where a ends, some positions further.
RINGSIDE_HD inline bool can_join(const Segment& a, const Segment& b) {
  return a.seq == b.seq && a.stride == b.stride && a.row_end() == b.row && a.len > 0 && b.len > 0 &&
         a.gap == 0 && b.gap == 0 && b.pos >= a.position(a.len);
}
RINGSIDE_HD inline Segment joined(Segment a, const Segment& b) {
  const int gap = b.pos - a.position(a.len);
  if (gap > 0) a.gap_at = a.len, a.gap = gap;
  a.len += b.len;
  return a;
}

RINGSIDE_HD inline int blocks_of(int rows, int rows_of_block) {
  return (rows + rows_of_block - 1) / rows_of_block;
}

// Whether both as one make fewer blocks, of a sequence of `len` tokens: behind padding there are
// none, and no blocks to spare.
RINGSIDE_HD inline bool spares_blocks(const Segment& a, const Segment& b, int len,
                                      int rows_of_block) {
  const int rows = a.rows_below(len), more = b.rows_below(len);
  return blocks_of(rows + more, rows_of_block) <
         blocks_of(rows, rows_of_block) + blocks_of(more, rows_of_block);
}

// Whether both see some of the same segments of keys, keys_of(0) and those behind it.
template <typename KeysOf>
RINGSIDE_HD_INLINE bool meet_the_same(const SequenceMask& mask, const Segment& a, const Segment& b,
                                      int segments, KeysOf keys_of) {
  const auto sees = [&](const Segment& q, const Segment& k) {
    const int rows = q.rows_below(mask.len_q);
    return rows > 0 && SeenKeys(mask, k, q, 0, rows).some.size() > 0;
  };
  bool any = false;
  for (int i = 0; i < segments; ++i) {
    const bool meets = sees(a, keys_of(i));
    if (meets != sees(b, keys_of(i))) return false;
    any = any || meets;
  }
  return any;
}

}  // namespace ringside
