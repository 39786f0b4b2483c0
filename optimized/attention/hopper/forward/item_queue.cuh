// The items that one warp of a block of threads takes.
#pragma once

#include "optimized/attention/hopper/queue.h"
#include "optimized/tables/work_list.h"

namespace ringside::hopper {

// Words of a struct in global memory, a lane each: fetched at once, and waited for when asked for.
template <typename T>
struct LaneWords {
  static constexpr int kWords = sizeof(T) / sizeof(int);
  static_assert(kWords <= 32 && sizeof(T) % sizeof(int) == 0);
  int word = 0;

  __device__ void fetch(const T* from) {
    const int lane = threadIdx.x % 32;
    if (lane < kWords) word = reinterpret_cast<const int*>(from)[lane];
  }
  __device__ T get() const {
    union {
      int words[kWords];
      T value;
    } all{};
#pragma unroll
    for (int i = 0; i < kWords; ++i) all.words[i] = __shfl_sync(~0u, word, i);
    return all.value;
  }
};

inline constexpr int kProducers = 2;  // such warps of a block of threads

// One item is under way, and the number of the next is asked for when it begins: what is in hand
// cannot be given to others any more, and towards the end of a launch they run out of items. The
// first is not asked for: it is where it would be if all takers, so many warps of every block of
// threads, ran alike.
class ItemQueue {
 public:
  __device__ ItemQueue(const WorkList& work, const QueueOrder& order, int32_t* taken, int warp)
      : work_(work), order_(order), taken_(taken), items_(*work.num_items) {
    fetch(gridDim.x * warp + blockIdx.x);
    fetch_partner();
    advance();
  }

  __device__ bool valid() const { return valid_; }
  __device__ WorkItem item() const { return item_.get(); }
  __device__ Segment first_partner() const { return partner_.get(); }  // of the item
  __device__ int head() const { return head_; }

  // Of the next item, one after the other, each when there is time before it: the number, the item
  // and its first partner.
  __device__ void ask() {
    if (threadIdx.x % 32 == 0) number_ = atomicAdd(taken_, 1);
  }
  __device__ void fetch_item() { fetch(kProducers * gridDim.x + __shfl_sync(~0u, number_, 0)); }
  __device__ void fetch_partner() {
    if (!next_valid_) return;
    const WorkItem next = next_item_.get();
    if (next.partner_begin < next.partner_end)
      next_partner_.fetch(work_.partners + next.partner_begin);
  }
  __device__ void advance() {
    valid_ = next_valid_, head_ = next_head_;
    item_ = next_item_, partner_ = next_partner_;
  }

 private:
  __device__ void fetch(unsigned index) {
    next_valid_ = index < order_.size(items_);
    if (!next_valid_) return;
    const QueueEntry entry = order_.ending_together(index, items_);
    next_head_ = entry.head;
    next_item_.fetch(work_.items + entry.item);
  }

  const WorkList& work_;
  const QueueOrder& order_;
  int32_t* taken_;
  int items_, head_ = 0, next_head_ = 0, number_ = 0;
  bool valid_ = false, next_valid_ = false;
  LaneWords<WorkItem> item_, next_item_;
  LaneWords<Segment> partner_, next_partner_;
};

}  // namespace ringside::hopper
