// The items that one warp of a block of threads takes.
#pragma once

#include <cstddef>

#include "optimized/attention/hopper/queue.h"
#include "optimized/tables/work_list.h"

namespace ringside::hopper {

// Words of a struct in global memory, a lane each: fetched at once, and waited for when they are
// put down or one is asked for.
template <typename T>
struct LaneWords {
  static constexpr int kWords = sizeof(T) / sizeof(int);
  static_assert(kWords <= 32 && sizeof(T) % sizeof(int) == 0);
  int word = 0;

  __device__ void fetch(const T* from) {
    const int lane = threadIdx.x % 32;
    if (lane < kWords) word = reinterpret_cast<const int*>(from)[lane];
  }
  __device__ void put(T& to) const {
    const int lane = threadIdx.x % 32;
    if (lane < kWords) reinterpret_cast<int*>(&to)[lane] = word;
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
  __device__ int at(size_t byte) const {
    return __shfl_sync(~0u, word, static_cast<int>(byte / sizeof(int)));
  }
};

inline constexpr int kProducers = 2;  // such warps of a block of threads

// One item is under way, and the number of the next is asked for when it begins: what is in hand
// cannot be given to others any more, and towards the end of a launch they run out of items. The
// first is not asked for: it is where it would be if all takers, so many warps of every block of
// threads, ran alike.
class ItemQueue {
 public:
  __device__ ItemQueue(const WorkList& work, const QueueOrder& order, int32_t* taken, int warp,
                       WorkItem& place)
      : work_(work), order_(order), taken_(taken), place_(place), items_(*work.num_items) {
    fetch(gridDim.x * warp + blockIdx.x);
    fetch_partner();
    advance();
  }

  __device__ bool valid() const { return valid_; }
  __device__ const WorkItem& item() const { return place_; }
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
    const int begin = next_item_.at(offsetof(WorkItem, partner_begin));
    if (begin < next_item_.at(offsetof(WorkItem, partner_end)))
      next_partner_.fetch(work_.partners + begin);
  }
  __device__ void advance() {
    valid_ = next_valid_, head_ = next_head_, partner_ = next_partner_;
    __syncwarp();  // nobody reads what was there
    next_item_.put(place_);
    __syncwarp();
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
  WorkItem& place_;  // in shared memory: registers of all lanes would hold the same
  int items_, head_ = 0, next_head_ = 0, number_ = 0;
  bool valid_ = false, next_valid_ = false;
  LaneWords<WorkItem> next_item_;
  LaneWords<Segment> partner_, next_partner_;
};

}  // namespace ringside::hopper
