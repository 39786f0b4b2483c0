// DualChunk's arithmetic where cp_size is known at launch: nothing is divided by it. Devices have
// no instruction for integer division, and a dependent one costs about a tenth of a microsecond.
//
// Device code includes this file too.
#pragma once

#include "reference/thd/dual_chunk.h"

namespace ringside::thd {

// n / d is n * multiplier >> shift, for 0 <= n < 2^31: the multiplier is 2^shift / d and at most 1
// too large, so the product is less than n / d + 1 / d as long as n * d <= 2^shift.
class Divisor {
 public:
  explicit Divisor(int d) {
    while ((int64_t{1} << (shift_ - 31)) < d) ++shift_;
    multiplier_ = static_cast<uint32_t>((uint64_t{1} << shift_) / static_cast<uint64_t>(d) + 1);
  }
  friend RINGSIDE_HD int operator/(int n, const Divisor& d) {
    return static_cast<int>(static_cast<uint64_t>(n) * d.multiplier_ >> d.shift_);
  }

 private:
  uint32_t multiplier_ = 0;
  int shift_ = 31;
};

struct Slot {  // row `row` of those that `rank` holds of a sequence
  int rank = 0, row = 0;
  bool operator==(const Slot&) const = default;
};

struct DualChunks {
  int cp_size = 1;
  Divisor num_chunks{2};

  DualChunks(int ranks = 1) : cp_size(ranks), num_chunks(2 * ranks) {}

  // n * rank / (2*cp_size); rank up to cp_size. The remainder of n is less than 2*cp_size, so that
  // no product reaches 2^31.
  RINGSIDE_HD Order::Cut cut(int n, int rank) const {
    const int whole = n / num_chunks, part = (n - whole * 2 * cp_size) * rank;
    const int of_part = part / num_chunks, floor = whole * rank + of_part;
    return {floor, floor + (of_part * 2 * cp_size != part)};
  }

  // Of n rows, how many the ranks before this one hold.
  RINGSIDE_HD int rows_before(int n, int rank) const {
    return Order::rows_before(n, cp_size, rank, [&](int i) { return cut(n, i); });
  }

  RINGSIDE_HD Runs runs(int n, int rank, int row) const {
    return Runs::of(Order::pieces_of(n, cp_size, rank, [&](int i) { return cut(n, i); }), row);
  }

  RINGSIDE_HD Slot slot(int n, int position) const {
    const int rank = Order::owner(n, cp_size, position);
    const Runs rows = runs(n, rank, 0);
    return {rank, position < rows.first.end ? position - rows.first.begin
                                            : rows.first.size() + (position - rows.second.begin)};
  }
};

}  // namespace ringside::thd
