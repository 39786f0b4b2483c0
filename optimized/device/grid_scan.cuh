// Sums over all threads of a launch, in the order of the threads. Blocks come in groups,
// gridDim.x of them; the gridDim.y blocks of a group have the same sequences, and share the work of
// writing what comes of them.
#pragma once

#include <cooperative_groups.h>

#include "optimized/device/block_scan.cuh"

namespace ringside::thd {

inline constexpr int kMetadataThreads = 256;
inline constexpr int kMostGroups = 1024;  // of a launch, for which a workspace has room

// `of_groups`: [kSums, groups] in device memory. More than one group must be a cooperative launch.
template <int kSums>
__device__ SumsAt<uint32_t, kSums> grid_sums(const Sums<uint32_t, kSums>& mine,
                                             uint32_t* of_groups) {
  SumsAt<uint32_t, kSums> sums = block_sums<kMetadataThreads>(mine);
  const int groups = static_cast<int>(gridDim.x), group = static_cast<int>(blockIdx.x);
  if (groups == 1) return sums;
  __shared__ uint32_t earlier[kSums], all[kSums];
  if (threadIdx.x == 0 && blockIdx.y == 0)
#pragma unroll
    for (int i = 0; i < kSums; ++i) of_groups[i * groups + group] = sums.total.of[i];
  cooperative_groups::this_grid().sync();
  const int lane = threadIdx.x % kLanes, warps = kMetadataThreads / kLanes;
#pragma unroll 1
  for (int i = threadIdx.x / kLanes; i < kSums; i += warps) {
    uint32_t before = 0, total = 0;
#pragma unroll 1
    for (int g = lane; g < groups; g += kLanes) {
      const uint32_t sum = of_groups[i * groups + g];
      total += sum;
      if (g < group) before += sum;
    }
    before = warp_sum(before), total = warp_sum(total);
    if (lane == 0) earlier[i] = before, all[i] = total;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    sums.before.of[i] += earlier[i];
    sums.total.of[i] = all[i];
  }
  return sums;
}

// Consecutive sequences, most often one: those of a thread of this block's group.
struct Share {
  int begin, end;
  __device__ int size() const { return end - begin; }

  __device__ Share(int batch, int thread) {
    const int threads = static_cast<int>(gridDim.x) * kMetadataThreads;
    const int each = (batch + threads - 1) / threads;
    const int64_t first =
        int64_t{each} * (static_cast<int>(blockIdx.x) * kMetadataThreads + thread);
    begin = static_cast<int>(first < batch ? first : batch);
    end = static_cast<int>(first + each < batch ? first + each : batch);
  }
};

// Every thread of a launch visits each step-th index.
struct GridStride {
  int64_t first, step;
  __device__ GridStride()
      : first((int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * kMetadataThreads + threadIdx.x),
        step(int64_t{gridDim.x} * gridDim.y * kMetadataThreads) {}
};

}  // namespace ringside::thd
