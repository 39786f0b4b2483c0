// What the rows of an item see of a segment of keys, in closed form.
#pragma once

#include "reference/rows/seen_rows.h"

namespace ringside::hopper {

// Where positions are consecutive and the mask knows no chunks, both ends of what a row sees move
// by one from row to row, between the segment's ends.
struct SeenLine {
  bool holds = false;
  int begin = 0, end = 0;  // of the first row, before they are clipped
  int last = 0;            // what is seen ends there, at the latest

  SeenLine() = default;
  // Of the rows of query segment `q` from number `first` on.
  RINGSIDE_HD SeenLine(const SequenceMask& s, const Segment& k, const Segment& q, int first)
      : holds(k.stride == 1 && q.stride == 1 && s.mask.chunk == 0) {
    const int64_t place = s.mask.aligned(q.pos + first, s.len_q, s.len_k) - k.pos;
    begin = s.mask.left == kUnbounded ? -kFar : near(place - s.mask.left);
    end = s.mask.right == kUnbounded ? kFar : near(place + s.mask.right + 1);
    last = near(int64_t{s.len_k} - k.pos);
    last = last < 0 ? 0 : last < k.len ? last : k.len;
  }

  // A row, counted from the first, that is a token.
  RINGSIDE_HD Interval seen_by(int row) const {
    const int from = clipped(begin + row), to = clipped(end + row);
    return {from, to > from ? to : from};
  }

 private:
  static constexpr int kFar = 1 << 30;  // more than rows of a buffer; sums with rows stay in range

  RINGSIDE_HD static int near(int64_t place) {
    return static_cast<int>(place < -kFar ? -kFar : place < kFar ? place : kFar);
  }
  RINGSIDE_HD int clipped(int row) const { return row < 0 ? 0 : row < last ? row : last; }
};

}  // namespace ringside::hopper
