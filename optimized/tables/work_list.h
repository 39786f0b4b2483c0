// What one kernel launch has to do: blocks of rows, and for each the segments it meets.
//
// Forward, an item is a block of query rows of one query segment, and its partners are the key
// segments of the same sequence in the resident buffer: the online softmax runs across all of them,
// so a step needs no merge; a block ends where a segment does, so gathered segments are few, and
// two segments of queries may go as one (Segment::gap). For dk and dv, an item is a block of key
// rows and its partners are query segments. Which rows of a partner matter is not stored: both ends
// follow from the positions and the mask (seen_rows.h), the same integers for every kernel, and
// blocks outside are skipped.
#pragma once

#include <cstdint>

#include "reference/rows/mask.h"
#include "reference/rows/segment.h"
#include "reference/support/host_device.h"

namespace ringside {

// Of an item, who else writes its rows: nobody before it, so that there is nothing to go on from;
// nobody behind it, so that its results are final, where its launch is told where to leave such.
inline constexpr int kAloneBefore = 1, kAloneBehind = 2;

enum class ListOrder : uint8_t {
  longest_first,
  by_document,  // items of a segment together
  in_turn,      // of keys: of a segment, an item behind those whose keys come before its own, where
                // items take turns at adding to dq (sums/item_turns.h)
};

struct WorkItem {
  Segment own;             // the segment that the block is cut from
  int begin = 0, end = 0;  // its rows, counted from own.row; all of them valid tokens
  int partner_begin = 0, partner_end = 0;  // into WorkList::partners
  int len_q = 0, len_k = 0;                // valid tokens of the sequence
  int alone = 0;                           // kAloneBefore, kAloneBehind; as far as is known
};

// Whether what an item leaves is final: where its launch is told where to leave such, or not.
RINGSIDE_HD inline bool leaves_final(const WorkItem& item, bool is_told) {
  return is_told && (item.alone & kAloneBehind) != 0;
}

// Whether kernels can work on an item of query rows.
RINGSIDE_HD inline bool is_sound(const WorkItem& item) {
  const Segment& own = item.own;
  return (own.seq >= 0) & (own.pos >= 0) & (own.stride > 0) & (own.row >= 0) & (own.len > 0) &
         (own.gap >= 0) & (item.partner_begin <= item.partner_end) & (item.len_q > 0) &
         (item.len_k >= 0);
}

struct WorkList {  // device (or host) memory
  const WorkItem* items = nullptr;
  const Segment* partners = nullptr;
  const int32_t* num_items = nullptr;  // read by the kernel: the host need not know it
  int max_items = 0;                   // capacity
  Mask mask;
  bool is_full = true;  // it holds max_items, as lists made on the host do
};

// Blocks of threads that a list gets for each head. One an item, where the host knows their number;
// else, for all heads together, no more than take a few turns on the device's processors, each of
// which goes on with further items: room costs nothing.
inline int blocks_of_list(const WorkList& work, int heads, int processors) {
  constexpr int kBlocksOfProcessor = 16;  // two at a time: eight turns even out
  if (work.is_full || heads == 0) return work.max_items;
  const int64_t most = (int64_t{kBlocksOfProcessor} * processors + heads - 1) / heads;
  return static_cast<int>(work.max_items < most ? work.max_items : most);
}

}  // namespace ringside
