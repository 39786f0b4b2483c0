// The online softmax of scores that a softcap bends, where nothing else happens to them. Bending
// keeps the order of scores: a row's largest is found as without a cap, and what bends a score
// takes it from the largest one, too.
#pragma once

#include "optimized/attention/hopper/forward/bent_softmax.cuh"

namespace ringside::hopper {

// Scores are q.k, of a positive scale; `top` is a bent one, a logit to base 2.
struct CappedSoftmax : BentSoftmax {
  float outgrown[2];  // q.k: what is not above it by 2^kSlack has not outgrown `top` by as much
  // Bits of a lane's rows: of those scores of the row that it holds one of this block is not near.
  uint32_t far_rows;
  // Rows that were far in one block before, and behind them those that were in two: they are in all
  // later ones, which are not asked any more.
  uint32_t were_far;

  using BentSoftmax::BentSoftmax;
  __device__ __forceinline__ void start() {
    OnlineSoftmax::start();
    start_highest();
  }
  // Also of a row that earlier launches have seen: of its scores so far nothing is known.
  __device__ __forceinline__ void start_highest() {
    BentSoftmax::start_highest();
    outgrown[0] = outgrown[1] = -INFINITY;
    were_far = 0;
  }

  // What weights are relative to, and which rows are bent how; true and `factor` as of
  // OnlineSoftmax's update. A bent score is no further from another one than before: but for
  // rounding no more than `kSlack` above `top` if it was not. Where the block is masked, `seen`
  // tells what is hidden, -inf, from what is small.
  template <int kScores>
  __device__ __forceinline__ bool look(float (&scores)[kScores], float (&factor)[2],
                                       const ScoreNumbers& n, bool is_masked,
                                       const SeenKeys& seen) {
    far_rows = were_far >> 2;
    const bool asks_for_far = __any_sync(~0u, far_rows != 3);
    float of_lane[2], of_other[2], block_top[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      of_lane[half] = row_top(scores, half);
      highest[half] = fmaxf(highest[half], of_lane[half]);
      of_other[half] = __shfl_xor_sync(~0u, of_lane[half], 1);
    }
    if (asks_for_far) {  // while lanes exchange
      if (is_masked)
        find_far_rows(scores, n.near, seen);
      else
        find_far_rows(scores, n.near, of_lane);
    }
    were_far |= far_rows | (were_far & far_rows) << 2;
    bool outgrown = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_two = fmaxf(of_lane[half], of_other[half]);
      block_top[half] = fmaxf(of_two, __shfl_xor_sync(~0u, of_two, 2));
      outgrown |= outgrows(block_top[half], half, n) || block_top[half] > n.far.most;
    }
    const bool raises = __any_sync(~0u, outgrown);
    if (raises) {
      raise(block_top, factor, n);
      if (__any_sync(~0u, fmaxf(block_top[0], block_top[1]) > n.far.most))
        clip_scores(scores, n.far.most);
    }
    return raises;
  }

  // Turns q.k that have been looked at into weights exp2(bent - top). Where no lane of the warp has
  // far scores, as is the rule, both its rows are one stretch of code.
  template <int kScores>
  __device__ __forceinline__ void weigh(float (&scores)[kScores], const ScoreNumbers& n,
                                        bool is_masked, const SeenKeys& seen) {
    if (__builtin_expect(!__any_sync(~0u, far_rows != 0), true)) {
      if (is_masked) hide_near(scores, 0, seen), hide_near(scores, 1, seen);
      weigh_near(scores, 0, n.near);
      weigh_near(scores, 1, n.near);
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (far_rows & 1u << half) {
        bend_far(scores, half, n.far, n.far.cap - top[half]);
        if (is_masked) seen.hide_unseen(scores, half);
        take_exponentials(scores, half);
      } else {
        if (is_masked) hide_near(scores, half, seen);
        weigh_near(scores, half, n.near);
      }
    __syncwarp();  // wgmma's instructions are of whole warps
  }

 private:
  static constexpr int kBatch = 8;  // scores, all of one row
  // Also where both are the same infinity.
  __device__ __forceinline__ bool outgrows(float score, int half, const ScoreNumbers& n) const {
    return !((score - outgrown[half]) * n.scale_log2 <= kSlack);
  }

  __device__ __forceinline__ void raise(const float (&block_top)[2], float (&factor)[2],
                                        const ScoreNumbers& n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float new_top = bent(block_top[half], n);
      const bool rises = outgrows(block_top[half], half, n);
      // The lse of earlier launches may be above. Where a row sees nothing here, it stays.
      const bool is_higher =
          rises && new_top > top[half] && (block_top[half] != -INFINITY || top[half] == -INFINITY);
      factor[half] = is_higher ? exp2_fast(top[half] - new_top) : 1;
      if (rises) outgrown[half] = block_top[half];
      if (is_higher) top[half] = new_top;
      sum[half] *= factor[half];
    }
  }

  // What is not a number counts as near, and stays what it is.
  __device__ __forceinline__ void note_largest(float largest, int half, const NearSoftcap& near) {
    if (!near.has(largest)) far_rows |= 1u << half;
  }
  template <int kScores>
  __device__ __forceinline__ void find_far_rows(const float (&scores)[kScores],
                                                const NearSoftcap& near, const SeenKeys& seen) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i)
        if ((seen.of_row[half] & 1u << i) != 0)
          largest[i % 2] = fmaxf(largest[i % 2], fabsf(scores[score_of(half, i)]));
      note_largest(fmaxf(largest[0], largest[1]), half, near);
    }
  }
  // Where nothing is hidden, by the highest scores: the word of the lowest is the largest without
  // a sign, if it is below zero.
  template <int kScores>
  __device__ __forceinline__ void find_far_rows(const float (&scores)[kScores],
                                                const NearSoftcap& near,
                                                const float (&of_lane)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t lowest[2] = {0, 0};
#pragma unroll
      for (int n = 0; n < kScores / 4; ++n)
        lowest[n % 2] = max(max(lowest[n % 2], __float_as_uint(scores[4 * n + 2 * half])),
                            __float_as_uint(scores[4 * n + 2 * half + 1]));
      const float low = __uint_as_float(max(lowest[0], lowest[1]));
      note_largest(fmaxf(of_lane[half], fabsf(low)), half, near);
    }
  }

  // The last term is below zero: what near scores are multiplied by is -inf where they are
  // infinite.
  template <int kScores>
  __device__ __forceinline__ static void hide_near(float (&scores)[kScores], int half,
                                                   const SeenKeys& seen) {
    seen.hide_unseen(scores, half, INFINITY);
  }
  // `top`, of a row that has seen nothing, is that of -inf, minus the cap.
  template <int kScores>
  __device__ __forceinline__ void weigh_near(float (&scores)[kScores], int half,
                                             const NearSoftcap& near) {
    float odd = 0;
#pragma unroll
    for (int first = 0; first < kScores / 2; first += kBatch) {
      float of_batch[kBatch], beyond[kBatch], factors[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) of_batch[i] = scores[score_of(half, first + i)];
      near.find_factors(of_batch, beyond, factors);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float weight = exp2_fast(fmaf(of_batch[i], factors[i], -top[half]));
        scores[score_of(half, first + i)] = weight;
        (i % 2 == 0 ? sum[half] : odd) += weight;
      }
    }
    sum[half] += odd;
  }
};

}  // namespace ringside::hopper
