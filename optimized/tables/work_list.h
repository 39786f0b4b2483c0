// What one kernel launch has to do: blocks of rows, and for each the segments it meets.
//
// Forward, an item is a block of query rows of one query segment, and its partners are the key
// segments of the same sequence in the resident buffer: the online softmax runs across all of them,
// so a step needs no merge, and a gathered buffer in rank order needs no reorder. Backward for dk
// and dv, an item is a block of key rows and its partners are query segments. Which rows of a
// partner matter is not stored: both ends follow from the positions and the mask (visible_keys,
// seeing_queries below), the same integers for every kernel, and blocks outside are skipped.
//
// Everything here runs on the host and on the device; work_list_test.cpp checks it by brute force.
#pragma once

#include <cstdint>

#include "reference/host_device.h"
#include "reference/mask.h"
#include "reference/segment.h"

namespace ringside {

struct WorkItem {
  Segment own;             // the segment that the block is cut from
  int begin = 0, end = 0;  // its rows, counted from own.row; all of them valid tokens
  int partner_begin = 0, partner_end = 0;  // into WorkList::partners
  int len_q = 0, len_k = 0;                // valid tokens of the sequence
};

// True of every item of query rows. A kernel that asks before it begins has all of the item loaded
// at once.
RINGSIDE_HD inline bool is_sound(const WorkItem& item) {
  const Segment& own = item.own;
  return (own.seq >= 0) & (own.pos >= 0) & (own.stride > 0) & (own.row >= 0) & (own.len > 0) &
         (item.partner_begin <= item.partner_end) & (item.len_q > 0) & (item.len_k >= 0);
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

struct SequenceMask {  // a mask with the lengths of one sequence filled in
  Mask mask;
  int len_q = 0, len_k = 0;

  // The rows of key segment `k` (counted from its first) that query position `q` sees.
  RINGSIDE_HD Interval visible_rows(const Segment& k, int q) const {
    return k.rows_within(mask.visible(q, len_q, len_k));
  }

  // The rows of `k` that some row i in [begin, end) of query segment `q` sees, and a little more:
  // the first and the last are seen, rows between them may be seen by none. Both ends of what a row
  // sees never decrease, so a gap (of stride or chunk) is jumped by bisection.
  RINGSIDE_HD Interval visible_keys(const Segment& k, const Segment& q, int begin, int end) const {
    Interval keys{0, k.len};
    for (int i = begin; keys.begin < keys.end;) {
      const int first = k.position(keys.begin);
      i = first_row(q, {i, end}, [&](Interval seen) { return seen.end > first; });
      if (i == end) return {keys.begin, keys.begin};
      const int lo = visible(q, i).begin;
      if (lo <= first) break;
      keys.begin = k.rows_below(lo);
    }
    for (int i = end; keys.begin < keys.end;) {
      const int last = k.position(keys.end - 1);
      i = first_row(q, {begin, i}, [&](Interval seen) { return seen.begin > last; });
      const int hi = visible(q, i - 1).end;
      if (hi > last) break;
      keys.end = k.rows_below(hi);
    }
    return keys;
  }

  // The rows of query segment `q` that see some row j in [begin, end) of key segment `k`, and a
  // little more, as above.
  RINGSIDE_HD Interval seeing_queries(const Segment& q, const Segment& k, int begin,
                                      int end) const {
    Interval rows{0, q.rows_below(len_q)};
    for (int j = begin; j < end;) {  // the first row that sees something at or behind key j
      const int key = k.position(j);
      rows.begin = first_row(q, rows, [&](Interval seen) { return seen.end > key; });
      if (rows.begin == rows.end) return rows;
      const Interval seen = visible(q, rows.begin);
      if (seen.begin <= key) break;
      j = k.rows_below(seen.begin);
      if (j < end && k.position(j) < seen.end) break;
      if (j >= end) return {rows.begin, rows.begin};
    }
    for (int j = end - 1; rows.begin < rows.end;) {  // the last one, likewise
      const int key = k.position(j);
      rows.end = first_row(q, rows, [&](Interval seen) { return seen.begin > key; });
      if (rows.begin == rows.end) return rows;
      const Interval seen = visible(q, rows.end - 1);
      if (seen.end > key) break;
      j = k.rows_below(seen.end) - 1;
      if (j >= begin && k.position(j) >= seen.begin) break;
      if (j < begin) return {rows.begin, rows.begin};
    }
    return rows;
  }

 private:
  RINGSIDE_HD Interval visible(const Segment& q, int i) const {
    return mask.visible(q.position(i), len_q, len_k);
  }

  // The first of `rows` for which a predicate on its visible interval, once true, stays true.
  template <typename Predicate>
  RINGSIDE_HD int first_row(const Segment& q, Interval rows, Predicate predicate) const {
    int lo = rows.begin, hi = rows.end;
    while (lo < hi) {
      const int mid = lo + (hi - lo) / 2;
      if (predicate(visible(q, mid))) {
        hi = mid;
      } else {
        lo = mid + 1;
      }
    }
    return lo;
  }
};

}  // namespace ringside
