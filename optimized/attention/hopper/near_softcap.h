// Softcap of scores that are small beside the cap, as most are: without exponents and quotients.
#pragma once

#include <cmath>

#include "reference/support/host_device.h"

namespace ringside::hopper {

// tanh(x) / x = sum of tanh[k] (x^2 - squared)^k where x^2 < squared: 1 where x is 0, and x times
// it good to `error`.
struct NearRange {
  static constexpr int kTerms = 4;
  double squared, error, tanh[kTerms];
};
inline constexpr NearRange kLeastRange{
    0.16,
    2.84e-8,
    {0.9498723350009134, -0.2944959646696454, 0.109924448511202, -0.047423039564586635}};
inline constexpr NearRange kWiderRange{
    0.25,
    1.94e-7,
    {0.9242339291237072, -0.2756282899169881, 0.09868664998933578, -0.04422929745358971}};
inline constexpr NearRange kWidestRange{
    0.36, 9e-7, {0.895081119345114, -0.25501482629781, 0.08652329349812952, -0.04072625922318119}};

// Beside a low cap many scores are not small, and 2^(bent logits) are weights as they are: normal
// numbers of float16, as e^-7.4 and e^7.4 are.
inline constexpr float kLowSoftcap = 7.4f;

// The widest range that moves no logit by more than that, so that more rows are near altogether;
// none beside larger caps than the least range allows. Where even the widest would leave out some
// of ordinary scores, of variance 1, the least serves: rows that are far from the start cost less
// than a warp that goes both ways.
inline constexpr double kNearError = 1e-5;
inline const NearRange* near_range(double softcap) {
  if (softcap <= kLowSoftcap) return &kLeastRange;
  for (const NearRange* range : {&kWidestRange, &kWiderRange, &kLeastRange})
    if (range->error * softcap <= kNearError) return range;
  return nullptr;
}

// The same in units of q.k, to logits to base 2.
struct NearSoftcap {
  static constexpr int kTerms = NearRange::kTerms;
  float squared;  // scores of smaller squares are near; negative: none are
  float terms[kTerms];
  float per_logit;  // from such logits to units of the cap, tanh's

  NearSoftcap() = default;
  // Scores are softmax_scale * q.k. None are near beside larger caps than any range has, nor where
  // float32 cannot hold a term.
  NearSoftcap(double softmax_scale, double softcap) {
    const NearRange* const range = near_range(softcap);
    squared = -1;
    if (range == nullptr) return;
    const double ratio = softmax_scale / softcap;
    const auto bound = static_cast<float>(range->squared / (ratio * ratio));
    per_logit = static_cast<float>(1 / (1.4426950408889634 * softcap));
    bool holds = std::isnormal(bound) && std::isnormal(per_logit);
    double unit = 1.4426950408889634 * softmax_scale;
    for (int k = 0; k < kTerms; ++k, unit *= ratio * ratio) {
      terms[k] = static_cast<float>(range->tanh[k] * unit);
      holds = holds && std::isnormal(terms[k]);
    }
    if (holds) squared = bound;
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
