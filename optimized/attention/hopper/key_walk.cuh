// The blocks of keys that an item meets, found by one warp: each lane asks the mask for four of the
// item's rows, and what whole groups see follows from their first and last ones.
#pragma once

#include "optimized/attention/hopper/forward.cuh"
#include "reference/seen_rows.h"

namespace ringside::hopper {

class KeyWalk {
 public:
  // `first` is the item's first partner, fetched beforehand.
  __device__ KeyWalk(const WorkList& work, const WorkItem& item, const Segment& first)
      : work_(work),
        item_(item),
        lane_(static_cast<int>(threadIdx.x) % 32),
        rows_(item.end - item.begin),
        partner_(item.partner_begin - 1) {
    if (!take_next(first)) find();
  }

  __device__ bool valid() const { return partner_ < item_.partner_end; }
  __device__ int row() const { return first_row_ + begin_; }  // of the buffer of keys
  __device__ int keys() const { return end_ - begin_; }       // from there on
  __device__ void advance() {
    begin_ += kBlockKeys;
    if (begin_ >= end_) find();
  }

  // What the note of this block says of the groups.
  __device__ uint32_t flags() const {
    const uint32_t first = sight(0, min(kGroupRows, rows_) - 1).flags_of(begin_);
    if (rows_ <= kGroupRows) return first;
    return first | sight(kGroupRows, rows_ - 1).flags_of(begin_) << kBitsOfGroup;
  }

  // What every row sees, counted from this block's first key.
  __device__ void write(SeenTable& table) const {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i)
      table[lane_ + 32 * i] = {seen_[i].begin - begin_, seen_[i].size()};
  }

 private:
  static constexpr int kLaneRows = kItemRows / 32;

  __device__ void find() {  // the next partner's first block
    while (partner_ + 1 < item_.partner_end)
      if (take_next(work_.partners[partner_ + 1])) return;
    partner_ = item_.partner_end;
  }

  // Of a list without any, there is none. False: the item sees none of the segment.
  __device__ bool take_next(const Segment& k) {
    if (++partner_ >= item_.partner_end) return false;
    const SequenceMask mask{work_.mask, item_.len_q, item_.len_k};
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      const int row = item_.begin + min(lane_ + 32 * i, rows_ - 1);
      seen_[i] = mask.visible_rows(k, item_.own.position(row));
    }
    first_row_ = k.row;
    begin_ = row_sight(0).begin, end_ = max(row_sight(rows_ - 1).end, begin_);
    return begin_ < end_;
  }

  __device__ Interval row_sight(int row) const {
    const int i = row / 32;
    const Interval mine = i < 2 ? (i == 0 ? seen_[0] : seen_[1]) : (i == 2 ? seen_[2] : seen_[3]);
    return {__shfl_sync(~0u, mine.begin, row % 32), __shfl_sync(~0u, mine.end, row % 32)};
  }
  __device__ GroupSight sight(int first, int last) const {
    return {row_sight(first), row_sight(last)};
  }

  const WorkList& work_;
  const WorkItem& item_;
  int lane_, rows_, partner_;
  int first_row_ = 0, begin_ = 0, end_ = 0;
  Interval seen_[kLaneRows];
};

}  // namespace ringside::hopper
