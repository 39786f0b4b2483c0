// What every softmax has that bends its scores itself, by a softcap, where nothing else happens to
// them. Bending keeps the order of scores: a row's largest is found as without a cap.
#pragma once

#include "optimized/attention/hopper/forward/softmax.cuh"
#include "optimized/attention/hopper/score_policy.cuh"

namespace ringside::hopper {

// Scores are q.k, of a positive scale; `top` is a bent one, a logit to base 2.
struct BentSoftmax : OnlineSoftmax {
  float highest[2];  // q.k, of a lane's columns and rows

  using OnlineSoftmax::OnlineSoftmax;
  __device__ __forceinline__ void start_highest() { highest[0] = highest[1] = -INFINITY; }
  // A logit to base 2. A lane that has seen nothing in any launch has no sum.
  __device__ __forceinline__ float highest_logit(int half, const ScoreNumbers& n) const {
    return sum[half] == 0 ? -INFINITY : bent(highest[half], n);
  }

 protected:
  __device__ __forceinline__ static int score_of(int half, int i) {
    return i / 2 * 4 + 2 * half + i % 2;
  }
  __device__ __forceinline__ static float bent(float score, const ScoreNumbers& n) {
    return bend(score, n.far.power, n.far.cap);
  }
  template <int kScores>
  __device__ __forceinline__ static void clip_scores(float (&scores)[kScores], float most) {
#pragma unroll
    for (float& score : scores)
      if (score > most) score = most;
  }
  // Of a row, scores that are clipped: what they are bent to, plus `shift` - cap. All four are NaN
  // where one is, as all of the row are in the end.
  template <int kScores>
  __device__ __forceinline__ static void bend_far(float (&scores)[kScores], int half,
                                                  const FarSoftcap& far, float shift) {
#pragma unroll
    for (int first = 0; first < kScores / 2; first += 4) {
      float four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        four[i] = far.denominator(exp2_fast(scores[score_of(half, first + i)] * far.power));
      const FarSoftcap::Four quotients(four);
      quotients.bend(inverse_fast(quotients.of_all()), shift, four);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[score_of(half, first + i)] = four[i];
    }
  }
  // Of exponents, which become weights.
  template <int kScores>
  __device__ __forceinline__ void take_exponentials(float (&scores)[kScores], int half) {
    float odd = 0;
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      float& score = scores[score_of(half, i)];
      score = exp2_fast(score);
      (i % 2 == 0 ? sum[half] : odd) += score;
    }
    sum[half] += odd;
  }
};

}  // namespace ringside::hopper
