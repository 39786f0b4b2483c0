// What the rows of a query block see of an item of keys, where each row sees one key further than
// the one before: two numbers, where others must be asked row by row.
#pragma once

#include "reference/rows/seen_rows.h"

namespace ringside::hopper {

struct Band {
  static constexpr int kFar = 1 << 29;  // sums of two and a row's number are integers still

  int first = 0, last = 0;  // of row 0, counted from the item's first key, inside it or not

  // Whether what rows of `q` see of rows of `k` is one.
  RINGSIDE_HD static bool fits(const SequenceMask& s, const Segment& q, const Segment& k) {
    return s.mask.is_one_window() && q.stride == 1 && k.stride == 1 && s.len_q < kFar &&
           s.len_k < kFar;
  }
  // Of the rows of `q`, and of the keys of `k` from the row `begin` on.
  RINGSIDE_HD Band(const SequenceMask& s, const Segment& q, const Segment& k, int begin) {
    // What the first row sees of an axis that ends nowhere near, on which it stands kFar further
    // on.
    constexpr int kEndless = 0x7fffffff;
    Mask mask = s.mask;
    mask.align = Align::top_left;
    const auto stands = static_cast<int>(s.mask.aligned(q.pos, s.len_q, s.len_k)) + kFar;
    const Interval window = mask.visible(stands, kEndless, kEndless);
    const int first_key = kFar + k.pos + begin;
    first = window.begin - first_key, last = window.end - first_key;
  }
  // The keys that a row sees, of so many; {0, 0} for none.
  RINGSIDE_HD Interval of_row(int row, int keys) const {
    const int begin = first + row > 0 ? first + row : 0;
    const int end = last + row < keys ? last + row : keys;
    return begin < end ? Interval{begin, end} : Interval{};
  }
};

}  // namespace ringside::hopper
