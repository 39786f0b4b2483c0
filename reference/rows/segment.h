// A run of tokens of one sequence that lies in consecutive rows of one buffer.
//
// Row row+i holds position pos + i*stride of sequence seq. Every row knows its position: what a
// rank owns, what a buffer holds and what a tile computes are all segments.
#pragma once

#include <vector>

#include "reference/rows/mask.h"
#include "reference/support/host_device.h"

namespace ringside {

struct Segment {
  int seq = 0, pos = 0, stride = 1, row = 0, len = 0;
  // Two of a sequence, one below the other, may go as one in kernels' work lists: rows from number
  // `gap_at` on are `gap` positions further. Those of plans have none.
  int gap_at = 0x7fffffff, gap = 0;

  RINGSIDE_HD int position(int i) const { return pos + i * stride + (i < gap_at ? 0 : gap); }
  RINGSIDE_HD int row_end() const { return row + len; }
  bool operator==(const Segment&) const = default;

  // The rows, counted from `row`, whose positions lie in `positions`: one interval again.
  RINGSIDE_HD Interval rows_within(Interval positions) const {
    const int begin = first_at_or_after(positions.begin), end = first_at_or_after(positions.end);
    return {begin, end > begin ? end : begin};
  }

  // How many leading rows hold positions below `length`: the rest is padding.
  RINGSIDE_HD int rows_below(int length) const { return first_at_or_after(length); }

 private:
  RINGSIDE_HD int first_at_or_after(int position) const {
    if (position <= pos) return 0;
    int i = steps_to(position - pos);
    if (i > gap_at && gap != 0) {
      const int behind = position - pos - gap - gap_at * stride;
      i = gap_at + (behind > 0 ? steps_to(behind) : 0);
    }
    return i < len ? i : len;
  }
  // Rounds up without overflow. Most strides are 1, and division is slow on a GPU.
  RINGSIDE_HD int steps_to(int further) const {
    return stride == 1 ? further : (further - 1) / stride + 1;
  }
};

using Shard = std::vector<Segment>;  // what a rank (or a resident buffer) holds, in row order

inline int num_rows(const Shard& shard) { return shard.empty() ? 0 : shard.back().row_end(); }

// Adds positions pos, pos+stride, ... of a sequence below the rows already there; joins the last
// segment where it simply goes on.
inline void append(Shard& shard, int seq, int pos, int stride, int len) {
  if (len <= 0) return;
  if (!shard.empty()) {
    Segment& last = shard.back();
    if (last.seq == seq && last.stride == stride && last.position(last.len) == pos) {
      last.len += len;
      return;
    }
  }
  shard.push_back({seq, pos, stride, num_rows(shard), len});
}

}  // namespace ringside
