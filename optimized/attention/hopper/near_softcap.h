// Softcap of scores that are small beside the cap, as most are: without exponents and quotients.
#pragma once

#include <cmath>

#include "reference/support/host_device.h"

namespace ringside::hopper {

// tanh(x) / x = sum of kTanh[k] (x^2 - kNearSquared)^k where x^2 < kNearSquared: 1 where x is 0,
// and x times it good to 2^-18.9. A cap of 50 thus moves no weight, which 16 bits hold, by more
// than 2^-13 of it, and scores far below the cap by far less. Of larger caps, scores that are large
// themselves are not near: none moves a weight by more than 2^-10.9.
inline constexpr double kNearSquared = 0.16, kLargestNear = 50;
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
    const double ratio = softmax_scale / softcap, largest = kLargestNear / softcap;
    const double near_squared = std::fmin(kNearSquared, largest * largest);
    squared = static_cast<float>(near_squared / (ratio * ratio));
    bool holds = std::isnormal(squared);
    const double less = near_squared - kNearSquared;  // of x^2, from which the terms count
    const double tanh[] = {kTanh[0] + less * (kTanh[1] + less * kTanh[2]),
                           kTanh[1] + 2 * less * kTanh[2], kTanh[2]};
    double unit = 1.4426950408889634 * softmax_scale;
    for (int k = 0; k < kTerms; ++k, unit *= ratio * ratio) {
      terms[k] = static_cast<float>(tanh[k] * unit);
      holds = holds && std::isnormal(terms[k]);
    }
    per_logit = static_cast<float>(1 / (1.4426950408889634 * softcap));
    if (!holds || !std::isnormal(per_logit)) squared = -1;
  }

  RINGSIDE_HD_INLINE bool has(float score) const { return fmaf(score, score, -squared) < 0; }
  // Of scores: numbers below zero where they are near, and what they then are to be multiplied by.
  template <int kScores>
  RINGSIDE_HD_INLINE void find_factors(const float* scores, float (&beyond)[kScores],
                                       float (&factors)[kScores]) const {
    for (int i = 0; i < kScores; ++i) beyond[i] = fmaf(scores[i], scores[i], -squared);
    for (int i = 0; i < kScores; ++i) factors[i] = terms[kTerms - 1];
    for (int k = kTerms - 2; k >= 0; --k)
      for (int i = 0; i < kScores; ++i) factors[i] = fmaf(factors[i], beyond[i], terms[k]);
  }
};

}  // namespace ringside::hopper
