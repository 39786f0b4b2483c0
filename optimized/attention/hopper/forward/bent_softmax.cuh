// What every softmax has that bends its scores itself, by a softcap, where nothing else happens to
// them. Bending keeps the order of scores: a row's largest is found as without a cap.
#pragma once

#include "optimized/attention/hopper/forward/softmax.cuh"
#include "optimized/attention/hopper/score_policy.cuh"

namespace ringside::hopper {

// Scores are q.k, of a positive scale; `top` is a bent one, a logit to base 2.
struct BentSoftmax : OnlineSoftmax {
  float highest[2];  // q.k, of a lane's columns and rows
  // Bits of a lane's rows: of those scores of the row that it holds one of this block is not small;
  // one is not near.
  uint32_t large_rows, far_rows;
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
  __device__ __forceinline__ void look_at_rows(const float (&scores)[kScores],
                                               const float (&high)[2], const NearSoftcap& near,
                                               bool is_masked, const SeenKeys& seen) {
    large_rows = far_rows = near.small.squared > 0 ? were_far >> 2 : 3;
    if (!__any_sync(~0u, far_rows != 3)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float low = __uint_as_float(largest_word<uint32_t>(scores, half));
      const float largest =
          is_masked ? largest_seen(scores, half, seen) : fmaxf(fabsf(high[half]), fabsf(low));
      if (!near.small.has(largest)) large_rows |= 1u << half;
      if (!near.has(largest)) far_rows |= 1u << half;
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

  // Turns q.k that have been looked at into weights exp2(bent - top). A lane that went several ways
  // would take the time of all: where some of a warp's rows are far, all are bent in both ways, and
  // where some are not small, small ones by as many terms, of which they have none.
  template <int kScores>
  __device__ __forceinline__ void weigh_bent(float (&scores)[kScores], const ScoreNumbers& n,
                                             const float (&tops)[2], bool is_masked,
                                             const SeenKeys& seen) {
    if (__builtin_expect(!__any_sync(~0u, large_rows != 0), true)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) weigh_near(scores, half, n.near.small, tops[half]);
      return;
    }
    if (!__any_sync(~0u, far_rows != 0)) {
      if (!is_masked) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          weigh_near(scores, half, terms_of_row(half, n.near), tops[half]);
        return;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) bend_near(scores, half, n.near, tops[half]);
    } else if (__all_sync(~0u, far_rows == 3)) {
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
  // Of a row that is not far. What is hidden, -inf, stays so where it is bent by terms the last of
  // which is above zero, and becomes NaN where that is zero.
  __device__ __forceinline__ NearScores<5> terms_of_row(int half, const NearSoftcap& near) const {
    NearScores<5> of_row = near;
    if ((large_rows & 1u << half) != 0) return of_row;
    of_row.squared = near.small.squared;
#pragma unroll
    for (int k = 0; k < 5; ++k) of_row.terms[k] = k < 3 ? near.small.terms[k % 3] : 0;
    return of_row;
  }
  // use(i, bent) of a row's scores, less its top.
  template <int kScores, int kTerms, typename Use>
  __device__ __forceinline__ static void for_each_near(const float (&scores)[kScores], int half,
                                                       const NearScores<kTerms>& near, float of_row,
                                                       Use use) {
#pragma unroll
    for (int first = 0; first < kScores / 2; first += kBatch) {
      float of_batch[kBatch], beyond[kBatch], factors[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) of_batch[i] = scores[score_of(half, first + i)];
      near.find_factors(of_batch, beyond, factors);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) use(first + i, fmaf(of_batch[i], factors[i], -of_row));
    }
  }
  template <int kScores, int kTerms>
  __device__ __forceinline__ void weigh_near(float (&scores)[kScores], int half,
                                             const NearScores<kTerms>& near, float of_row) {
    float odd = 0;
    for_each_near(scores, half, near, of_row, [&](int i, float bent) {
      const float weight = exp2_fast(bent);
      scores[score_of(half, i)] = weight;
      (i % 2 == 0 ? sum[half] : odd) += weight;
    });
    sum[half] += odd;
  }
  template <int kScores>
  __device__ __forceinline__ void bend_near(float (&scores)[kScores], int half,
                                            const NearSoftcap& near, float of_row) const {
    for_each_near(scores, half, terms_of_row(half, near), of_row,
                  [&](int i, float bent) { scores[score_of(half, i)] = bent; });
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
    const NearScores<5> near = terms_of_row(half, n.near);
#pragma unroll
    for (int first = 0; first < kScores / 2; first += 4) {
      float four[4], beyond[4], factors[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = scores[score_of(half, first + i)];
      near.find_factors(four, beyond, factors);
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
