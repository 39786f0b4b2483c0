// The blocks of keys that an item meets, found by one warp: its lanes ask the mask for all of the
// item's rows, and what whole groups see follows from their first and last ones.
#pragma once

#include "optimized/attention/hopper/block_note.h"
#include "optimized/attention/hopper/forward/item_queue.cuh"
#include "optimized/attention/hopper/forward/softmax.cuh"
#include "reference/rows/seen_rows.h"

namespace ringside::hopper {

class KeyWalk {
 public:
  // Of the queue's item, which stays there: words that lanes share take few registers. `rows` is
  // this walk's own, in shared memory.
  __device__ KeyWalk(const WorkList& work, const ItemQueue& queue, SeenSegment& rows)
      : work_(work), queue_(queue), table_(rows) {
    const WorkItem item = queue.item();
    rows_ = item.end - item.begin;
    partner_ = item.partner_begin, partner_end_ = item.partner_end;
    if (partner_ < partner_end_ && !take(queue.first_partner())) find();
  }

  __device__ bool valid() const { return partner_ < partner_end_; }
  __device__ int row() const { return first_row_ + begin_; }  // of the buffer of keys
  __device__ int keys() const { return end_ - begin_; }       // from there on
  __device__ void advance() {
    begin_ += kBlockKeys;
    if (begin_ >= end_) find();
  }

  // What the note of this block says of the groups.
  __device__ uint32_t flags() const {
    if (clear_.begin <= begin_ && begin_ + kBlockKeys <= clear_.end) return kAllSeen;
    const uint32_t first = sight(0, min(kGroupRows, rows_) - 1).flags_of(begin_);
    if (rows_ <= kGroupRows) return first;
    return first | sight(kGroupRows, rows_ - 1).flags_of(begin_) << kBitsOfGroup;
  }

  // What every row sees of this block.
  __device__ void write(SeenTable& table) const {
    for (int row = threadIdx.x % 32; row < kItemRows; row += 32) {
      const int2 seen = table_[row];
      const int first = max(seen.x - begin_, 0), last = min(seen.x + seen.y - begin_, kBlockKeys);
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
    const WorkItem item = queue_.item();
    const SequenceMask mask{work_.mask, item.len_q, item.len_k};
    __syncwarp();  // nobody reads the table any more
#pragma unroll 1
    for (int row = threadIdx.x % 32; row < kItemRows; row += 32) {
      const Interval seen =
          mask.visible_rows(k, item.own.position(item.begin + min(row, rows_ - 1)));
      table_[row] = {seen.begin, seen.size()};
    }
    __syncwarp();
    const GroupSight all = sight(0, rows_ - 1);
    first_row_ = k.row;
    begin_ = all.some.begin, end_ = all.some.end;
    clear_ = rows_ > kGroupRows ? all.all : Interval{0, 0};
    return begin_ < end_;
  }

  __device__ GroupSight sight(int first, int last) const {
    const int2 a = table_[first], b = table_[last];
    return {{a.x, a.x + a.y}, {b.x, b.x + b.y}};
  }

  const WorkList& work_;
  const ItemQueue& queue_;
  SeenSegment& table_;
  int rows_, partner_, partner_end_;
  int first_row_ = 0, begin_ = 0, end_ = 0;
  Interval clear_;  // blocks in it are seen by all rows of both groups
};

}  // namespace ringside::hopper
