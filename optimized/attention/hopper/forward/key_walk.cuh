// The blocks of keys that an item meets, found by one warp. What a row sees of a segment moves by
// one from row to row, as a rule, and is three numbers for all of an item; else lanes ask the mask
// for all rows. What whole groups see follows from their first and last ones.
#pragma once

#include "optimized/attention/hopper/block_note.h"
#include "optimized/attention/hopper/forward/item_queue.cuh"
#include "optimized/attention/hopper/forward/softmax.cuh"
#include "optimized/attention/hopper/seen_line.h"
#include "reference/rows/seen_rows.h"

namespace ringside::hopper {

template <int kKeys>  // of a block
class KeyWalk {
 public:
  // Of the queue's item, which stays there: words that lanes share take few registers. `rows` is
  // this walk's own, in shared memory.
  __device__ KeyWalk(const WorkList& work, const ItemQueue& queue, SeenSegment& rows)
      : work_(work), queue_(queue), table_(rows) {
    const WorkItem& item = queue.item();
    rows_ = item.end - item.begin;
    partner_ = item.partner_begin, partner_end_ = item.partner_end;
    if (partner_ < partner_end_ && !take(queue.first_partner())) find();
  }

  __device__ bool valid() const { return partner_ < partner_end_; }
  __device__ int row() const { return first_row_ + begin_; }  // of the buffer of keys
  __device__ int keys() const { return end_ - begin_; }       // from there on
  __device__ int begin() const { return begin_; }             // of the partner's rows
  __device__ Segment partner() const { return work_.partners[partner_]; }
  __device__ void advance() {
    begin_ += kKeys;
    if (begin_ >= end_) find();
  }

  // What the note of this block says of the groups.
  __device__ uint32_t flags() const {
    const uint32_t first = sights_[0].flags_of(begin_, kKeys);
    if (rows_ <= kGroupRows) return first;
    return first | sights_[1].flags_of(begin_, kKeys) << kBitsOfGroup;
  }

  // What every row sees of this block.
  __device__ void write(SeenTable& table) const {
    for (int row = threadIdx.x % 32; row < kItemRows; row += 32) {
      const Interval seen = seen_by(row);
      const int first = max(seen.begin - begin_, 0), last = min(seen.end - begin_, kKeys);
      const bool sees = first < last;
      table[row] = {static_cast<uint8_t>(sees ? first : 0),
                    static_cast<uint8_t>(sees ? last - first : 0)};
    }
  }

 private:
  __device__ void find() {  // the next partner's first block
    while (++partner_ < partner_end_)
      if (take(work_.partners[partner_])) return;
  }

  // False: the item sees none of the segment.
  __device__ bool take(const Segment& k) {
    const WorkItem& item = queue_.item();
    const SequenceMask mask{work_.mask, item.len_q, item.len_k};
    line_ = SeenLine(mask, k, item.own, item.begin, 0);
    if (!line_.holds) ask_rows(mask, k, item);
    // Lanes ask for the first and the last row of each group.
    const int lane = threadIdx.x % 32, last = rows_ - 1;
    const Interval seen = seen_by(lane / 2 % kGroups * kGroupRows + lane % 2 * (kGroupRows - 1));
    Interval ends[2 * kGroups];
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i)
      ends[i] = {__shfl_sync(~0u, seen.begin, i), __shfl_sync(~0u, seen.end, i)};
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      sights_[group] = {ends[2 * group], ends[2 * group + 1]};
    const GroupSight all(ends[0], ends[last < kGroupRows ? 1 : 3]);
    first_row_ = k.row;
    begin_ = all.some.begin, end_ = all.some.end;
    return begin_ < end_;
  }

  // Rows behind the item's last are asked like it.
  __device__ void ask_rows(const SequenceMask& mask, const Segment& k, const WorkItem& item) const {
    __syncwarp();  // nobody reads the table any more
#pragma unroll 1
    for (int row = threadIdx.x % 32; row < kItemRows; row += 32) {
      const Interval seen =
          mask.visible_rows(k, item.own.position(item.begin + min(row, rows_ - 1)));
      table_[row] = {seen.begin, seen.size()};
    }
    __syncwarp();
  }
  __device__ Interval seen_by(int row) const {
    if (line_.holds) return line_.seen_by(min(row, rows_ - 1));
    const int2 seen = table_[row];
    return {seen.x, seen.x + seen.y};
  }

  const WorkList& work_;
  const ItemQueue& queue_;
  SeenSegment& table_;
  int rows_, partner_, partner_end_;
  SeenLine line_;
  GroupSight sights_[kGroups];  // of the second, nothing is asked if it has no rows
  int first_row_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace ringside::hopper
