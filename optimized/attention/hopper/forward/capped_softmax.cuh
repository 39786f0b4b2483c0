// The online softmax of scores that a softcap bends, where nothing else happens to them. Bending
// keeps the order of scores: a row's largest is found as without a cap, and what bends a score
// that is small beside the cap is the factor in front of its exponent.
#pragma once

#include <cfloat>

#include "optimized/attention/hopper/forward/softmax.cuh"
#include "optimized/attention/hopper/score_policy.cuh"

namespace ringside::hopper {

// Scores are q.k, of a positive scale; `top` is a bent one, a logit to base 2.
struct CappedSoftmax : OnlineSoftmax {
  float highest[2];   // q.k, of a lane's columns and rows
  float outgrown[2];  // q.k: what is not above it by 2^kSlack has not outgrown `top` by as much

  // A score of -inf weighs something: what is hidden is finite. The polynomial makes -inf of it.
  static constexpr float kHidden = -FLT_MAX;
  // A score that is seen and that very number becomes the next one, which is bent to the same.
  template <int kScores>
  __device__ __forceinline__ static void tell_from_hidden(float (&scores)[kScores]) {
    constexpr float kNext = -0x1.fffffcp127f;
#pragma unroll
    for (float& score : scores)
      if (score == kHidden) score = kNext;
  }

  using OnlineSoftmax::OnlineSoftmax;
  __device__ __forceinline__ void start() {
    OnlineSoftmax::start();
    start_highest();
  }
  // Also of a row that earlier launches have seen: of its scores so far nothing is known.
  __device__ __forceinline__ void start_highest() {
    highest[0] = highest[1] = outgrown[0] = outgrown[1] = -INFINITY;
  }
  // A logit to base 2. A lane that has seen nothing in any launch has no sum.
  __device__ __forceinline__ float highest_logit(int half, const ScoreNumbers& n) const {
    return sum[half] == 0 ? -INFINITY : bent(highest[half], n);
  }

  // Turns q.k into weights exp2(bent - top); `factor` as above. A bent score is no further from
  // another one than before: no more than `kSlack` above `top` if it was not.
  template <int kScores>
  __device__ __forceinline__ bool update(float (&scores)[kScores], float (&factor)[2],
                                         const ScoreNumbers& n, bool is_masked) {
    float block_top[2];
    bool raises = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_lane = row_top(scores, half);
      highest[half] = fmaxf(highest[half], of_lane);
      block_top[half] = quad_max(of_lane);
      raises |= outgrows(block_top[half], half, n);
    }
    raises = __any_sync(~0u, raises);
    if (raises) raise(block_top, factor, n);
    const uint32_t near = is_masked ? weigh_near<true>(scores, n) : weigh_near<false>(scores, n);
    constexpr uint32_t kAll = (1u << kScores / kBatch) - 1;
    if (__any_sync(~0u, near != kAll)) weigh_others(scores, n, near);
    return raises;
  }

 private:
  static constexpr int kBatch = 8;  // scores, all of one row: what others see is not to matter

  __device__ __forceinline__ static int row_of(int batch) { return batch % 2; }
  __device__ __forceinline__ static int score_of(int batch, int i) {
    return batch / 2 * (2 * kBatch) + i / 2 * 4 + 2 * row_of(batch) + i % 2;
  }
  __device__ __forceinline__ static float bent(float score, const ScoreNumbers& n) {
    return bend(score, n.bend_log2, n.softcap_log2);
  }
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
      const bool is_higher = rises && new_top > top[half];  // lse of earlier launches may be above
      factor[half] = is_higher ? exp2_fast(top[half] - new_top) : 1;
      if (rises) outgrown[half] = block_top[half];
      if (is_higher) top[half] = new_top;
      sum[half] *= factor[half];
    }
  }

  // Batches all of whose scores are near, or hidden: their bits, the first one's in front. Others
  // stay q.k.
  template <bool kMasked, int kScores>
  __device__ __forceinline__ uint32_t weigh_near(float (&scores)[kScores], const ScoreNumbers& n) {
    uint32_t near = 0;
    float odd[2] = {0, 0};
#pragma unroll
    for (int batch = 0; batch < kScores / kBatch; ++batch) {
      const int half = row_of(batch);
      float of_batch[kBatch], beyond[kBatch], factors[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) of_batch[i] = scores[score_of(batch, i)];
      n.near.find_factors(of_batch, beyond, factors);
      int signs = ~0;
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        signs &= kMasked && of_batch[i] == kHidden ? ~0 : __float_as_int(beyond[i]);
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        weigh_if_negative(signs, scores[score_of(batch, i)], factors[i], -top[half],
                          i % 2 == 0 ? sum[half] : odd[half]);
      near = __funnelshift_l(signs, near, 1);
    }
    sum[0] += odd[0], sum[1] += odd[1];
    return near;
  }

  // Scores of the other batches, each by itself.
  template <int kScores>
  __device__ __forceinline__ void weigh_others(float (&scores)[kScores], const ScoreNumbers& n,
                                               uint32_t near) {
    constexpr int kBatches = kScores / kBatch;
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      const int half = row_of(batch), is_done = near << (32 - kBatches + batch);
      if (!__any_sync(~0u, is_done >= 0)) continue;
      float of_batch[kBatch], beyond[kBatch], factors[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) of_batch[i] = scores[score_of(batch, i)];
      n.near.find_factors(of_batch, beyond, factors);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float score = of_batch[i];
        float power = if_negative(__float_as_int(beyond[i]), fmaf(score, factors[i], -top[half]),
                                  bent(score, n) - top[half]);
        if (score == kHidden) power = -INFINITY;
        const float weight = exp2_fast(power);
        scores[score_of(batch, i)] = if_negative(is_done, score, weight);
        sum[half] += if_negative(is_done, 0, weight);
      }
    }
  }
};

}  // namespace ringside::hopper
