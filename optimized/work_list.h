// What one kernel launch has to do: blocks of rows, and for each the segments it meets.
//
// Forward, an item is a block of query rows of one query segment, and its partners are the key segments
// of the same sequence in the resident buffer: the online softmax runs across all of them, so a step
// needs no merge, and a gathered buffer in rank order needs no reorder. Backward for dk and dv, an item
// is a block of key rows and its partners are query segments. Which rows of a partner matter is not
// stored: both ends follow from the positions and the mask (visible_keys, seeing_queries below), the
// same integers for every kernel, and blocks outside are skipped.
//
// Everything here runs on the host and on the device; work_list_test.cpp checks it by brute force.
#pragma once

#include <cstdint>

#include "reference/host_device.h"
#include "reference/mask.h"
#include "reference/segment.h"

namespace ringside {

struct WorkItem {
  Segment own;                 // the segment that the block is cut from
  int begin = 0, end = 0;      // its rows, counted from own.row; all of them valid tokens
  int partner_begin = 0, partner_end = 0;  // into WorkList::partners
};

struct WorkList {              // device (or host) memory
  const WorkItem* items = nullptr;
  const Segment* partners = nullptr;
  const int32_t* num_items = nullptr;  // read by the kernel: the host need not know it
  int max_items = 0;                   // capacity: the launch size
  const int32_t* cu_seqlens_q = nullptr;  // [batch+1] valid tokens
  const int32_t* cu_seqlens_k = nullptr;
  Mask mask;

  RINGSIDE_HD int len_q(int seq) const { return cu_seqlens_q[seq + 1] - cu_seqlens_q[seq]; }
  RINGSIDE_HD int len_k(int seq) const { return cu_seqlens_k[seq + 1] - cu_seqlens_k[seq]; }
};

struct SequenceMask {  // a mask with the lengths of one sequence filled in
  Mask mask;
  int len_q = 0, len_k = 0;

  // The rows of key segment `k` (counted from its first) that query position `q` sees.
  RINGSIDE_HD Interval visible_rows(const Segment& k, int q) const {
    return k.rows_within(mask.visible(q, len_q, len_k));
  }

  // The rows of `k` that some row i in [begin, end) of query segment `q` sees, and a little more: ends
  // are exact, rows between them may be seen by none. Monotonic ends make first and last row enough.
  RINGSIDE_HD Interval visible_keys(const Segment& k, const Segment& q, int begin, int end) const {
    const int lo = mask.visible(q.position(begin), len_q, len_k).begin;
    const int hi = mask.visible(q.position(end - 1), len_q, len_k).end;
    return k.rows_within({lo, hi > lo ? hi : lo});
  }

  // The rows of query segment `q` that see some row j in [begin, end) of key segment `k`, and a little
  // more, as above: rows whose interval ends behind the first key and begins before the last.
  RINGSIDE_HD Interval seeing_queries(const Segment& q, const Segment& k, int begin, int end) const {
    const int rows = q.rows_below(len_q);
    const int first = first_row(q, rows, [&](Interval seen) { return seen.end > k.position(begin); });
    const int last = first_row(q, rows, [&](Interval seen) { return seen.begin > k.position(end - 1); });
    return {first, last > first ? last : first};
  }

 private:
  // The first of `rows` rows for which a predicate on its visible interval, once true, stays true.
  template <typename Predicate>
  RINGSIDE_HD int first_row(const Segment& q, int rows, Predicate predicate) const {
    int lo = 0, hi = rows;
    while (lo < hi) {
      const int mid = lo + (hi - lo) / 2;
      if (predicate(mask.visible(q.position(mid), len_q, len_k))) {
        hi = mid;
      } else {
        lo = mid + 1;
      }
    }
    return lo;
  }
};

}  // namespace ringside
