// Which rows of a sequence lie in a rank's buffer, in dual chunks: the partition named zigzag,
// which is Transformer Engine's THD order where 2*cp_size divides the rows, padding included.
// Integers only: device code includes this file too.
#pragma once

#include <cstdint>

#include "reference/partition/pieces.h"
#include "reference/rows/mask.h"
#include "reference/support/host_device.h"

namespace ringside::thd {

using Order = Zigzag;  // the partition that thd's ranks own rows by

// The rows of one sequence in one buffer: at most two runs of positions, their rows back to back.
struct Runs {
  Interval first, second;  // positions; first.end <= second.begin
  int row = 0;             // of the first position

  RINGSIDE_HD static Runs of(const ringside::Pieces& pieces, int row) {
    return {pieces.first, pieces.second, row};
  }

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

// One sequence whose rows are owned in dual chunks.
struct DualChunk {
  int rows = 0, cp_size = 1;

  // What `rank` holds, in a buffer where its rows of this sequence start at `row`.
  RINGSIDE_HD Runs runs(int rank, int row) const {
    return Runs::of(Order::pieces(rows, cp_size, rank), row);
  }
  RINGSIDE_HD int local_rows(int rank) const { return runs(rank, 0).num_rows(); }
};

}  // namespace ringside::thd
