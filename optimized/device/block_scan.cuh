// Sums over the threads of a warp or a block, several at a time: their latencies overlap.
#pragma once

#include <cstdint>

namespace ringside::thd {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

template <typename T>
__device__ T warp_sum(T value) {
  if constexpr (sizeof(T) == sizeof(uint32_t)) {
    return __reduce_add_sync(kAllLanes, value);
  } else {
    for (int step = 1; step < kLanes; step *= 2) value += __shfl_xor_sync(kAllLanes, value, step);
    return value;
  }
}

// Over the lanes up to this one, itself included.
template <typename T>
__device__ T warp_sum_through(T value) {
  const int lane = threadIdx.x % kLanes;
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += before;
  }
  return value;
}

template <typename T, int kSums>
struct Sums {
  T of[kSums] = {};
};

template <typename T, int kSums>
struct SumsAt {
  Sums<T, kSums> before, total;  // over the threads before this one; over all
};

template <int kThreads, typename T, int kSums>
__device__ SumsAt<T, kSums> block_sums(const Sums<T, kSums>& mine) {
  constexpr int kWarps = kThreads / kLanes;
  static_assert(kThreads % kLanes == 0 && kWarps <= kLanes, "one warp sums the warps");
  __shared__ T of_warp[kSums][kWarps];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  T through[kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) through[i] = warp_sum_through(mine.of[i]);
  __syncthreads();  // of_warp may still be read from the call before
  if (lane == kLanes - 1)
#pragma unroll
    for (int i = 0; i < kSums; ++i) of_warp[i][warp] = through[i];
  __syncthreads();
  SumsAt<T, kSums> sums;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const T of_lane = lane < kWarps ? of_warp[i][lane] : T{0};
    sums.total.of[i] = warp_sum(of_lane);
    sums.before.of[i] = warp_sum(lane < warp ? of_lane : T{0}) + through[i] - mine.of[i];
  }
  return sums;
}

}  // namespace ringside::thd
