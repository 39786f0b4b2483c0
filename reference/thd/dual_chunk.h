// Where dual chunks (zigzag) put a token: token -> (rank, slot) and back, one sequence at a time.
//
// A sequence of `rows` rows, padding included, is cut into 2*cp_size chunks; chunk c begins at
// floor(c*rows/(2*cp_size)), so no length has to divide. Rank r holds chunk r, then its mirror
// image 2*cp_size-1-r. Where 2*cp_size divides `rows` this is Transformer Engine's THD order.
// Integers only, nothing from std: device code includes this file too.
#pragma once

#include <cstdint>

#include "reference/host_device.h"
#include "reference/mask.h"

namespace ringside::thd {

// The rows of one sequence in one buffer: at most two runs of positions, their rows back to back.
struct Runs {
  Interval first, second;  // positions; first.end <= second.begin
  int row = 0;             // of the first position

  RINGSIDE_HD int num_rows() const { return first.size() + second.size(); }
  RINGSIDE_HD Runs first_half() const { return {first, {}, row}; }
  RINGSIDE_HD Runs second_half() const { return {second, {}, row + first.size()}; }

  RINGSIDE_HD int position_at(int i) const {  // of row `row` + i
    return i < first.size() ? first.begin + i : second.begin + (i - first.size());
  }

  // Rows that hold positions below `position`; positions between the runs count as the second's.
  RINGSIDE_HD int rows_below(int64_t position) const {
    return inside(first, position) + inside(second, position);
  }

 private:
  RINGSIDE_HD static int inside(Interval run, int64_t position) {
    if (position <= run.begin) return 0;
    return position < run.end ? static_cast<int>(position) - run.begin : run.size();
  }
};

struct Slot {  // row `row` of those that `rank` holds of a sequence
  int rank = 0, row = 0;
  bool operator==(const Slot&) const = default;
};

struct DualChunk {
  int rows = 0, cp_size = 1;

  RINGSIDE_HD int mirror(int rank) const { return 2 * cp_size - 1 - rank; }
  RINGSIDE_HD int chunk_begin(int chunk) const {
    return static_cast<int>(int64_t{rows} * chunk / (2 * cp_size));
  }
  RINGSIDE_HD Interval chunk(int c) const { return {chunk_begin(c), chunk_begin(c + 1)}; }

  // The last chunk that begins at or before the position: the others that do are empty.
  RINGSIDE_HD int chunk_of(int position) const {
    return static_cast<int>(((int64_t{position} + 1) * (2 * cp_size) - 1) / rows);
  }

  // What `rank` holds, in a buffer where its rows of this sequence start at `row`.
  RINGSIDE_HD Runs runs(int rank, int row) const { return {chunk(rank), chunk(mirror(rank)), row}; }
  RINGSIDE_HD int local_rows(int rank) const { return runs(rank, 0).num_rows(); }

  RINGSIDE_HD Slot slot(int position) const {
    const int c = chunk_of(position), offset = position - chunk_begin(c);
    if (c < cp_size) return {c, offset};
    return {mirror(c), chunk(mirror(c)).size() + offset};
  }
  RINGSIDE_HD int position(Slot slot) const { return runs(slot.rank, 0).position_at(slot.row); }
};

}  // namespace ringside::thd
