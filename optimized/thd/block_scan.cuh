// Sums over the threads of a block.
#pragma once

namespace ringside::thd {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

// The sum of `value` over the threads before this one. `total` becomes that over all.
template <int kThreads, typename T>
__device__ T sum_before(T value, T& total) {
  static_assert(kThreads % kLanes == 0 && kThreads <= kLanes * kLanes, "one warp sums the warps");
  __shared__ T of_warp[kLanes];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  T sum = value;
  for (int step = 1; step < kLanes; step *= 2) {
    const T before = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += before;
  }
  __syncthreads();  // of_warp may still be read from the call before
  if (lane == kLanes - 1) of_warp[warp] = sum;
  __syncthreads();
  T before = 0;
  total = 0;
  for (int w = 0; w < kThreads / kLanes; ++w) {
    if (w == warp) before = total;
    total += of_warp[w];
  }
  return before + sum - value;
}

}  // namespace ringside::thd
