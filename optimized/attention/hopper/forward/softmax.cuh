// The online softmax of the Hopper forward kernel, in the registers of lanes that hold scores.
#pragma once

#include "optimized/attention/hopper/block_note.h"
#include "optimized/attention/hopper/machine/numbers.h"

namespace ringside::hopper {

// Scores of a lane: two rows of so many keys, a quarter of each.
template <int kKeys>
using Scores = float[kKeys / 2];

// What the rows of an item see: begin and size. Of a block of keys, counted from its first and
// clipped to it; of a segment.
using SeenTable = uchar2[kItemRows];
using SeenSegment = int2[kItemRows];

// How many of a lane's keys, two of every 8, lie in front of a key.
template <int kKeys>
__device__ __forceinline__ int keys_of_lane(int key) {
  const int at = max(key - static_cast<int>(threadIdx.x) % 4 * 2, 0);
  return min(at / 8 * 2 + min(at % 8, 2), kKeys / 4);
}

// Of a lane's keys, which its two rows, 8 apart, see: a bit each, which costs less than compares.
struct SeenKeys {
  uint32_t of_row[2];

  template <int kScores>
  __device__ __forceinline__ void hide_unseen(float (&scores)[kScores], int half) const {
#pragma unroll
    for (int n = 0; n < kScores / 4; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if ((of_row[half] & 1u << (2 * n + i)) == 0) scores[4 * n + 2 * half + i] = -INFINITY;
  }
};

// Hides keys that a lane's rows do not see.
template <int kKeys>
__device__ __forceinline__ SeenKeys hide_unseen(float (&scores)[kKeys / 2],
                                                const uchar2* of_first_row) {
  SeenKeys keys;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uchar2 seen = of_first_row[8 * half];
    const int begin = keys_of_lane<kKeys>(seen.x);
    keys.of_row[half] = ones(begin, keys_of_lane<kKeys>(seen.x + seen.y) - begin);
    keys.hide_unseen(scores, half);
  }
  return keys;
}

// The running softmax of a lane's two rows.
struct OnlineSoftmax {
  // The maximum that weights are relative to, before scaling; a lane's own columns' share of the
  // sum.
  float top[2], sum[2];
  float scale_log2;

  // The old maximum serves until a row outgrows it by 2^8: weights stay far from overflow, the
  // common factor cancels in the end, and most blocks need no pass over the output. Each row has
  // its own: what others of the warp see does not change its bits.
  static constexpr int kSlack = 8;

  __device__ explicit OnlineSoftmax(float scale) : scale_log2(scale * kLog2E) {}

  __device__ __forceinline__ void start() {
    top[0] = top[1] = -INFINITY;
    sum[0] = sum[1] = 0;
  }

  // Turns scores into weights exp2(scale_log2 * (score - top)). True: the output of before must be
  // multiplied by `factor`, as the sum has been.
  template <int kScores>
  __device__ __forceinline__ bool update(float (&scores)[kScores], float (&factor)[2]) {
    float block_top[2];
    bool outgrown = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      block_top[half] = quad_max(row_top(scores, half));
      outgrown |= (block_top[half] - top[half]) * scale_log2 > kSlack;
    }
    const bool raises = __any_sync(~0u, outgrown);
    if (raises) raise(block_top, factor);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A row that saw nothing yet has top -inf: its scores are all -inf and must become zero.
      // One that saw +inf has a sum of +inf, not inf - inf.
      const float shift = fabsf(top[half]) == INFINITY ? 0 : top[half] * scale_log2;
      float odd = 0;
#pragma unroll
      for (int n = 0; n < kScores / 4; ++n) {
        float* two = scores + 4 * n + 2 * half;
        two[0] = exp2_fast(fmaf(two[0], scale_log2, -shift));
        two[1] = exp2_fast(fmaf(two[1], scale_log2, -shift));
        sum[half] += two[0];
        odd += two[1];
      }
      sum[half] += odd;
    }
    return raises;
  }

  // Of a lane's own columns. Any where one is not a number, as then the row is none in the end.
  //
  // One instruction finds the largest or smallest of three words. Numbers compare as their words
  // do, with signs; below zero the other way round, without. Most lanes have one above zero.
  template <int kScores>
  __device__ __forceinline__ static float row_top(const float (&scores)[kScores], int half) {
    int32_t largest[2] = {INT32_MIN, INT32_MIN};
#pragma unroll
    for (int n = 0; n < kScores / 4; ++n)
      largest[n % 2] = max(max(largest[n % 2], __float_as_int(scores[4 * n + 2 * half])),
                           __float_as_int(scores[4 * n + 2 * half + 1]));
    const float top = __int_as_float(max(largest[0], largest[1]));
    return top >= 0 ? top : row_top_below_zero(scores, half);
  }

 private:
  template <int kScores>
  __device__ __forceinline__ static float row_top_below_zero(const float (&scores)[kScores],
                                                             int half) {
    uint32_t smallest[2] = {~0u, ~0u};
#pragma unroll
    for (int n = 0; n < kScores / 4; ++n)
      smallest[n % 2] = min(min(smallest[n % 2], __float_as_uint(scores[4 * n + 2 * half])),
                            __float_as_uint(scores[4 * n + 2 * half + 1]));
    return __uint_as_float(min(smallest[0], smallest[1]));
  }

  __device__ __forceinline__ void raise(const float (&block_top)[2], float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float higher = (block_top[half] - top[half]) * scale_log2;
      factor[half] = higher > kSlack ? exp2_fast(-higher) : 1;
      if (higher > kSlack) top[half] = block_top[half];
      sum[half] *= factor[half];
    }
  }
};

}  // namespace ringside::hopper
