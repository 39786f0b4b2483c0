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

// Each takes its next item when it has done one, and no sooner: while it asks, the other's blocks
// keep the block of threads busy, and long items do not wait behind one that is under way. The
// first is not asked for: blocks of threads that begin with a longer one go on with a shorter one.
class ItemQueue {
 public:
  __device__ ItemQueue(const WorkList& work, const QueueOrder& order, int32_t* taken, int warp)
      : work_(work), order_(order), taken_(taken), items_(*work.num_items) {
    const unsigned block = blockIdx.x, blocks = gridDim.x;
    fetch(warp % 2 == 0 ? blocks * warp + block : blocks * (warp + 1) - 1 - block);
  }

  __device__ bool valid() const { return valid_; }
  __device__ WorkItem item() const { return item_.get(); }
  __device__ Segment first_partner() const { return partner_.get(); }  // of the item
  __device__ int head() const { return head_; }

  __device__ void advance() {
    int number = 0;
    if (threadIdx.x % 32 == 0) number = atomicAdd(taken_, 1);
    fetch(kProducers * gridDim.x + static_cast<unsigned>(__shfl_sync(~0u, number, 0)));
  }

 private:
  __device__ void fetch(unsigned index) {
    valid_ = index < order_.size(items_);
    if (!valid_) return;
    const QueueEntry entry = order_.at(index, items_);
    head_ = entry.head;
    item_.fetch(work_.items + entry.item);
    const WorkItem item = item_.get();
    if (item.partner_begin < item.partner_end) partner_.fetch(work_.partners + item.partner_begin);
  }

  const WorkList& work_;
  const QueueOrder& order_;
  int32_t* taken_;
  int items_, head_ = 0;
  bool valid_ = false;
  LaneWords<WorkItem> item_;
  LaneWords<Segment> partner_;
};

}  // namespace ringside::hopper
