// Softcap of scores that are small beside the cap, as most are: without exponents and quotients.
#pragma once

#include <cmath>

#include "reference/support/host_device.h"

namespace ringside::hopper {

// tanh(x) / x = sum of kTanh[k] (x^2 - kNearSquared)^k where x^2 < kNearSquared: 1 where x is 0,
// and x times it good to 2^-18.9. A cap of 50 thus moves no weight, which 16 bits hold, by more
// than 2^-13 of it, and scores far below the cap by far less. Beside caps that would move one by
// more than 2^-11.5 no score is near.
inline constexpr double kNearSquared = 0.16, kLargestCap = 125;
inline constexpr double kTanh[] = {0.9498774788213533, -0.2938398865419258, 0.12141169265384932};

// The same in units of q.k, to logits to base 2.
struct NearSoftcap {
  static constexpr int kTerms = 3;
  static_assert(sizeof(kTanh) == kTerms * sizeof(double));
  float squared;  // scores of smaller squares are near; negative: none are
  float terms[kTerms];
  float per_logit;  // from such logits to units of the cap, tanh's

  NearSoftcap() = default;
  // Scores are softmax_scale * q.k. None are near where float32 cannot hold a term.
  NearSoftcap(double softmax_scale, double softcap) {
    const double ratio = softmax_scale / softcap;
    squared = static_cast<float>(kNearSquared / (ratio * ratio));
    bool holds = softcap <= kLargestCap && std::isnormal(squared);
    double unit = 1.4426950408889634 * softmax_scale;
    for (int k = 0; k < kTerms; ++k, unit *= ratio * ratio) {
      terms[k] = static_cast<float>(kTanh[k] * unit);
      holds = holds && std::isnormal(terms[k]);
    }
    per_logit = static_cast<float>(1 / (1.4426950408889634 * softcap));
    if (!holds || !std::isnormal(per_logit)) squared = -1;
  }

  // Less than zero where a score is near.
  RINGSIDE_HD_INLINE float beyond(float score) const { return fmaf(score, score, -squared); }
  RINGSIDE_HD_INLINE bool has(float score) const { return beyond(score) < 0; }
  // Of scores: numbers below zero where they are near, and what they then are to be multiplied by.
  template <int kScores>
  RINGSIDE_HD_INLINE void find_factors(const float* scores, float (&beyond)[kScores],
                                       float (&factors)[kScores]) const {
    for (int i = 0; i < kScores; ++i) beyond[i] = this->beyond(scores[i]);
    for (int i = 0; i < kScores; ++i) factors[i] = terms[kTerms - 1];
    for (int k = kTerms - 2; k >= 0; --k)
      for (int i = 0; i < kScores; ++i) factors[i] = fmaf(factors[i], beyond[i], terms[k]);
  }
};

}  // namespace ringside::hopper
