// What every softmax has that bends its scores itself, by a softcap, where nothing else happens to
// them. Bending keeps the order of scores: a row's largest is found as without a cap.
#pragma once

#include "optimized/attention/hopper/forward/softmax.cuh"
#include "optimized/attention/hopper/score_policy.cuh"

namespace ringside::hopper {

// Scores are q.k, of a positive scale; `top` is a bent one, a logit to base 2.
struct BentSoftmax : OnlineSoftmax {
  float highest[2];  // q.k, of a lane's columns and rows
  // Bits of a lane's rows: of those scores of the row that it holds one of this block is not small.
  uint32_t far_rows;
  // Rows that were far in one block before, and behind them those that were in two: they are in all
  // later ones, which are not asked any more.
  uint32_t were_far;

  using OnlineSoftmax::OnlineSoftmax;
  __device__ __forceinline__ void start_highest() {
    highest[0] = highest[1] = -INFINITY;
    were_far = 0;
  }
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
  // Which rows are bent how. Each is asked for itself: what others see does not change its bits.
  // Where the cap has no small scores, all are far. `high`: the highest of a lane's scores of each.
  // Where the block is masked, `seen` tells what is hidden, -inf.
  template <int kScores>
  __device__ __forceinline__ void look_for_far(const float (&scores)[kScores],
                                               const float (&high)[2], const ScoreNumbers& n,
                                               bool is_masked, const SeenKeys& seen) {
    far_rows = n.near.small.squared > 0 ? were_far >> 2 : 3;
    if (!__any_sync(~0u, far_rows != 3)) return;
    const NearScores<3>& small = n.near.small;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float low = __uint_as_float(largest_word<uint32_t>(scores, half));
      const bool is_small = is_masked ? small.has(largest_seen(scores, half, seen))
                                      : small.has(high[half]) && small.has(low);
      if (!is_small) far_rows |= 1u << half;
    }
    were_far |= far_rows | (were_far & far_rows) << 2;
  }
  // Of a lane's scores of a row. With signs, that of the highest number, if it is above zero, or of
  // one that is none; without, that of the lowest, if it is below zero.
  template <typename Word, int kScores>
  __device__ __forceinline__ static Word largest_word(const float (&scores)[kScores], int half) {
    Word largest[2] = {};
#pragma unroll
    for (int n = 0; n < kScores / 4; ++n)
      largest[n % 2] = max(max(largest[n % 2], word_of<Word>(scores[4 * n + 2 * half])),
                           word_of<Word>(scores[4 * n + 2 * half + 1]));
    return max(largest[0], largest[1]);
  }
  template <typename Word>
  __device__ __forceinline__ static Word word_of(float number) {
    return static_cast<Word>(__float_as_uint(number));
  }
  template <int kScores>
  __device__ __forceinline__ static float largest_seen(const float (&scores)[kScores], int half,
                                                       const SeenKeys& seen) {
    float largest[2] = {};
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i)
      if ((seen.of_row[half] & 1u << i) != 0)
        largest[i % 2] = fmaxf(largest[i % 2], fabsf(scores[score_of(half, i)]));
    return fmaxf(largest[0], largest[1]);
  }

  // Turns q.k that have been looked at into weights exp2(bent - top). A lane that went two ways
  // would take the time of both: where a warp's rows differ, all are bent in both.
  template <int kScores>
  __device__ __forceinline__ void weigh_bent(float (&scores)[kScores], const ScoreNumbers& n,
                                             const float (&tops)[2], bool is_masked,
                                             const SeenKeys& seen) {
    if (__builtin_expect(!__any_sync(~0u, far_rows != 0), true)) {
      weigh_small(scores, 0, n.near.small, tops[0]);
      weigh_small(scores, 1, n.near.small, tops[1]);
      return;
    }
    if (__all_sync(~0u, far_rows == 3)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) bend_far(scores, half, n.far, n.far.cap - tops[half]);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) bend_any(scores, half, n, tops[half]);
    }
    if (is_masked) {
#pragma unroll
      for (int half = 0; half < 2; ++half) seen.hide_unseen(scores, half);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) take_exponentials(scores, half);
  }

 private:
  static constexpr int kBatch = 8;  // scores, all of one row
  // Of a row of small scores. What is hidden, -inf, stays so where it is bent: the last term is
  // above zero.
  template <int kScores>
  __device__ __forceinline__ void weigh_small(float (&scores)[kScores], int half,
                                              const NearScores<3>& small, float of_row) {
    float odd = 0;
#pragma unroll
    for (int first = 0; first < kScores / 2; first += kBatch) {
      float of_batch[kBatch], beyond[kBatch], factors[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) of_batch[i] = scores[score_of(half, first + i)];
      small.find_factors(of_batch, beyond, factors);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float weight = exp2_fast(fmaf(of_batch[i], factors[i], -of_row));
        scores[score_of(half, first + i)] = weight;
        (i % 2 == 0 ? sum[half] : odd) += weight;
      }
    }
    sum[half] += odd;
  }
  // Of four scores of a row that are clipped: what they are bent to, plus `shift` - cap. All are
  // NaN where one is, as all of the row are in the end.
  __device__ __forceinline__ static void bend_four(float (&four)[4], const FarSoftcap& far,
                                                   float shift) {
#pragma unroll
    for (float& score : four) score = far.denominator(exp2_fast(score * far.power));
    const FarSoftcap::Four quotients(four);
    quotients.bend(inverse_fast(quotients.of_all()), shift, four);
  }
  template <int kScores>
  __device__ __forceinline__ static void bend_far(float (&scores)[kScores], int half,
                                                  const FarSoftcap& far, float shift) {
#pragma unroll
    for (int first = 0; first < kScores / 2; first += 4) {
      float four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = scores[score_of(half, first + i)];
      bend_four(four, far, shift);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[score_of(half, first + i)] = four[i];
    }
  }
  // Of a row that is far or not, likewise, what they are bent to less its `top`.
  template <int kScores>
  __device__ __forceinline__ void bend_any(float (&scores)[kScores], int half,
                                           const ScoreNumbers& n, float of_row) {
    const bool is_far = (far_rows & 1u << half) != 0;
#pragma unroll
    for (int first = 0; first < kScores / 2; first += 4) {
      float four[4], beyond[4], factors[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = scores[score_of(half, first + i)];
      n.near.small.find_factors(four, beyond, factors);
#pragma unroll
      for (int i = 0; i < 4; ++i) factors[i] = fmaf(four[i], factors[i], -of_row);
      bend_four(four, n.far, n.far.cap - of_row);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[score_of(half, first + i)] = is_far ? four[i] : factors[i];
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
