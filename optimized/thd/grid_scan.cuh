// Sums over all threads of a cooperative launch, in the order of the threads.
#pragma once

#include <cooperative_groups.h>

#include "optimized/thd/block_scan.cuh"

namespace ringside::thd {

inline constexpr int kMetadataThreads = 128;
inline constexpr int kMostBlocks = 1024;  // of a launch, for which a workspace has room

template <int kSums>
struct Sums {
  uint32_t of[kSums] = {};
};

template <int kSums>
struct GridSums {
  Sums<kSums> before, total;  // over the threads before this one; over all
};

// `of_blocks`: [kSums, blocks] in device memory.
template <int kSums>
__device__ GridSums<kSums> grid_sums(const Sums<kSums>& mine, uint32_t* of_blocks) {
  __shared__ Sums<kSums> earlier, all;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  GridSums<kSums> sums;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    uint32_t of_block = 0;
    sums.before.of[i] = sum_before<kMetadataThreads>(mine.of[i], of_block);
    if (threadIdx.x == 0) of_blocks[i * blocks + block] = of_block;
  }
  cooperative_groups::this_grid().sync();
  const int lane = threadIdx.x % kLanes, warps = kMetadataThreads / kLanes;
  for (int i = threadIdx.x / kLanes; i < kSums; i += warps) {
    uint32_t before = 0, total = 0;
    for (int b = lane; b < blocks; b += kLanes) {
      const uint32_t sum = of_blocks[i * blocks + b];
      total += sum;
      if (b < block) before += sum;
    }
    before = __reduce_add_sync(kAllLanes, before);
    total = __reduce_add_sync(kAllLanes, total);
    if (lane == 0) earlier.of[i] = before, all.of[i] = total;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    sums.before.of[i] += earlier.of[i];
    sums.total.of[i] = all.of[i];
  }
  return sums;
}

// Each thread has consecutive sequences, most often one.
struct Share {
  int begin, end;

  __device__ explicit Share(int batch) {
    const int threads = static_cast<int>(gridDim.x) * kMetadataThreads;
    const int each = (batch + threads - 1) / threads;
    const int64_t first = int64_t{each} * (static_cast<int>(blockIdx.x) * kMetadataThreads +
                                           static_cast<int>(threadIdx.x));
    begin = static_cast<int>(first < batch ? first : batch);
    end = static_cast<int>(first + each < batch ? first + each : batch);
  }
};

// visit every index of [begin, end) in one thread of the launch.
struct GridStride {
  int64_t first, step;
  __device__ GridStride()
      : first(int64_t{blockIdx.x} * kMetadataThreads + threadIdx.x),
        step(int64_t{gridDim.x} * kMetadataThreads) {}
};

}  // namespace ringside::thd
