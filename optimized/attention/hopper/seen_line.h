// What rows of queries see of a segment's keys, where each row sees one key further than the one
// before, or by a gap further: a few numbers, where others must be asked row by row.
#pragma once

#include "reference/rows/seen_rows.h"

namespace ringside::hopper {

struct SeenLine {
  static constexpr int kFar = 1 << 29;  // sums of two and a row's number are integers still

  bool holds = false;       // whether what these rows see is one
  int begin = 0, end = 0;   // of the first row, counted from the first key, among them or not
  int keys = 0;             // how many there are
  int gap_at = 0, gap = 0;  // of Segment, from the first row on

  SeenLine() = default;
  // Of the rows of `q` from number `row` on, and the keys of `k` from number `key` on.
  RINGSIDE_HD SeenLine(const SequenceMask& s, const Segment& k, const Segment& q, int row, int key)
      : holds(s.mask.is_one_window() && q.stride == 1 && k.stride == 1 && s.len_q < kFar &&
              s.len_k < kFar) {
    // What the row sees of an axis that ends nowhere near, on which it stands kFar further on.
    constexpr int kEndless = 0x7fffffff;
    Mask mask = s.mask;
    mask.align = Align::top_left;
    const auto stands = static_cast<int>(s.mask.aligned(q.position(row), s.len_q, s.len_k)) + kFar;
    const Interval window = mask.visible(stands, kEndless, kEndless);
    const int first_key = kFar + k.pos + key;
    begin = window.begin - first_key, end = window.end - first_key;
    const int tokens = s.len_k - k.pos;
    keys = (tokens < k.len ? tokens : k.len) - key;
    gap_at = q.gap_at - row, gap = row < q.gap_at ? q.gap : 0;
  }

  // The keys that a row sees, counted from the first of each; the row is a token.
  RINGSIDE_HD Interval seen_by(int row) const {
    const int moved = row < gap_at ? row : row + gap;
    const int from = clipped(begin + moved), to = clipped(end + moved);
    return {from, to > from ? to : from};
  }

 private:
  RINGSIDE_HD int clipped(int key) const {
    return key < 0 || keys < 0 ? 0 : key < keys ? key : keys;
  }
};

}  // namespace ringside::hopper
