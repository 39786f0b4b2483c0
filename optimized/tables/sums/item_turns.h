// In which order items of keys add to dq, where one launch adds all of it and sums must come out
// the same from run to run: at each block of queries from a document's first keys to its last.
// Items of a list are taken in its order, so that who waits for its turn waits for those that were
// taken before it, and nobody for ever.
#pragma once

#include <vector>

#include "optimized/tables/work_list.h"
#include "reference/rows/seen_rows.h"

namespace ringside {

struct HostWorkList;

// Where visible() begins, where it is not empty; in fewer registers.
RINGSIDE_HD inline int first_visible(const SequenceMask& s, int q) {
  const Mask& mask = s.mask;
  const int p = static_cast<int>(mask.aligned(q, s.len_q, s.len_k));  // |p| is below a length
  int first = 0;
  if (mask.left != kUnbounded && p > mask.left) first = p - mask.left;
  if (mask.chunk > 0 && p > 0 && p / mask.chunk * mask.chunk > first)
    first = p / mask.chunk * mask.chunk;
  return first;
}

// How many items come before the one that begins at `begin` of its key segment, each of `rows`
// keys, at the block of queries that begins at row `row` of its only partner and that it meets.
RINGSIDE_HD inline int turn_of_item(const SequenceMask& mask, const Segment& keys, int begin,
                                    int rows, const Segment& queries, int row) {
  const int first = first_visible(mask, queries.pos + row) - keys.pos;  // strides are 1
  return begin / rows - (first > 0 ? first / rows : 0);
}

// The items of a list of items of keys in such an order, longest first as far as that allows. None
// where turn_of_item() does not hold: where rows of queries meet more than one segment of keys, or
// keys more than one of queries, or a segment's rows are not neighbours of the document.
std::vector<WorkItem> items_in_turn(const HostWorkList& list, const Mask& mask, int rows);

}  // namespace ringside
