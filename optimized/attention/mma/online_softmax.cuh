// The online softmax of the mma.sync forward kernel, in the registers of lanes that hold scores.
#pragma once

#include "optimized/attention/mma/common.cuh"

namespace ringside::mma {

// threadIdx.x, for what happens once an item: what follows from it is computed where it is needed,
// and takes no register (or a place in memory, to be fetched again) from the loop between.
__device__ inline int fresh_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// A lane's rows (m, half): row 16 m + 8 half + lane / 4 of its warp, here by index 2 m + half.
template <typename C>
struct LaneRows {
  static constexpr int kRows = 2 * C::kM;
  int64_t first;  // of the resident buffer; the next ones are 8 behind each other
  int left;       // rows of the item from the first on

  __device__ explicit LaneRows(const WorkItem& item) {
    const int thread = fresh_thread(), row = thread / 32 * 16 * C::kM + thread % 32 / 4;
    first = int64_t{item.own.row} + item.begin + row;
    left = item.end - item.begin - row;
  }
  __device__ bool has(int index) const { return 8 * index < left; }
};

// The running softmax of a lane's rows.
template <typename C>
struct OnlineSoftmax {
  // The maximum that weights are relative to, before scaling; a lane's own columns' share of the
  // sum.
  float top[C::kM][2], sum[C::kM][2];
  float slack;
  float highest = -INFINITY;  // score, if asked for

  __device__ void start() {
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) top[m][half] = -INFINITY, sum[m][half] = 0;
  }

  // Asked for the highest score, no block is let pass without a look at it.
  __device__ explicit OnlineSoftmax(bool with_highest) : slack(with_highest ? -INFINITY : kSlack) {}

  // Turns scores into weights exp2(scale_log2 * (score - top)) and keeps output and sum in step.
  __device__ void update(typename C::Scores& scores, typename C::Output& output, float scale_log2,
                         const WorkItem& item, int warp_row) {
    float block_top[C::kM][2];
    bool outgrown = false;
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        block_top[m][half] = row_top(scores[m], half);
        outgrown |= (block_top[m][half] - top[m][half]) * scale_log2 > slack;
      }
    if (__any_sync(~0u, outgrown)) raise(block_top, output, scale_log2, item, warp_row);
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // A row that saw nothing yet has top -inf: its scores are all -inf and must become zero.
        // One that saw +inf has a sum of +inf, not inf - inf.
        const float shift = fabsf(top[m][half]) == INFINITY ? 0 : top[m][half] * scale_log2;
#pragma unroll
        for (int n = 0; n < C::kKeys / 8; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[m][n][i] = exp2_fast(fmaf(scores[m][n][i], scale_log2, -shift));
            sum[m][half] += scores[m][n][i];
          }
      }
  }

  // The old maximum serves until a row outgrows it by 2^8: weights stay far from overflow, the
  // common factor cancels in the end, and most blocks need no pass over the output. Each row has
  // its own: what others of the warp see does not change its bits.
  static constexpr int kSlack = 8;

 private:
  __device__ static float row_top(const Accumulator (&scores)[C::kKeys / 8], int half) {
    float result = -INFINITY;
#pragma unroll
    for (int n = 0; n < C::kKeys / 8; ++n)
      result = fmaxf(result, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    result = fmaxf(result, __shfl_xor_sync(~0u, result, 1));
    return fmaxf(result, __shfl_xor_sync(~0u, result, 2));
  }

  __device__ void raise(const float (&block_top)[C::kM][2], typename C::Output& output,
                        float scale_log2, const WorkItem& item, int warp_row) {
    const int rows = item.end - item.begin - warp_row - static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (16 * m + 8 * half < rows) highest = fmaxf(highest, block_top[m][half]);
        const bool outgrown = (block_top[m][half] - top[m][half]) * scale_log2 > slack;
        const float raised = outgrown ? fmaxf(top[m][half], block_top[m][half]) : top[m][half];
        const float factor =
            raised == top[m][half] ? 1 : exp2_fast((top[m][half] - raised) * scale_log2);
        top[m][half] = raised;
        sum[m][half] *= factor;
#pragma unroll
        for (int n = 0; n < C::kV / 8; ++n)
          output[m][n][2 * half] *= factor, output[m][n][2 * half + 1] *= factor;
      }
  }
};

}  // namespace ringside::mma
