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
    bool raises = false, is_far = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_lane = row_top(scores, half);
      highest[half] = fmaxf(highest[half], of_lane);
      block_top[half] = quad_max(of_lane);
      raises |= outgrows(block_top[half], half, n);
      is_far |= of_lane > 0 && !n.near.has(of_lane);
    }
    raises = __any_sync(~0u, raises);
    if (raises) raise(block_top, factor, n);
    // Where a lane's largest is far all are weighed apart, which takes less than both ways one
    // behind the other. The bits are the same.
    uint32_t done = 0;
    if (!__any_sync(~0u, is_far))
      done = is_masked ? weigh_near<true>(scores, n) : weigh_near<false>(scores, n);
    constexpr uint32_t kAll = (1u << kScores / kBatch) - 1;
    if (__any_sync(~0u, done != kAll)) weigh_others(scores, n, done, is_masked);
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

  // Scores of the batches that are not done.
  template <int kScores>
  __device__ __forceinline__ void weigh_others(float (&scores)[kScores], const ScoreNumbers& n,
                                               uint32_t done, bool is_masked) {
    constexpr int kBatches = kScores / kBatch;
    uint32_t hidden[2] = {0, 0};  // of a lane's two rows, a bit a key: near whatever else is
    if (is_masked)
#pragma unroll
      for (int i = 0; i < kScores; ++i)
        if (scores[i] == kHidden) scores[i] = 0, hidden[i / 2 % 2] |= 1u << (i / 4 * 2 + i % 2);
    float odd[2] = {0, 0};
#pragma unroll
    for (int of_two = 0; of_two < kBatches / 2; ++of_two) {
      // Both rows' at once. All else is without branches, which take as long as 20 scores each.
      const int are_done = done << (32 - kBatches + 2 * of_two);
      if (__all_sync(~0u, (are_done & are_done << 1) < 0)) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int batch = 2 * of_two + half, is_done = are_done << half;
        float q_k[kBatch], beyond[kBatch], factors[kBatch], powers[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          q_k[i] = scores[score_of(batch, i)];
          powers[i] = exp2_fast(fabsf(q_k[i]) * -n.bend_log2);
        }
        n.far.bend(q_k, powers);
        n.near.find_factors(q_k, beyond, factors);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          powers[i] = if_negative(__float_as_int(beyond[i]), fmaf(q_k[i], factors[i], -top[half]),
                                  powers[i] - top[half]);
          if (hidden[half] & 1u << (of_two * kBatch + i)) powers[i] = -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          weigh_unless_negative(is_done, scores[score_of(batch, i)], powers[i],
                                i % 2 == 0 ? sum[half] : odd[half]);
      }
    }
    sum[0] += odd[0], sum[1] += odd[1];
  }
};

}  // namespace ringside::hopper
