// Softcap of scores that are small beside the cap, as most are: without exponents and quotients.
#pragma once

#include <cmath>

#include "reference/support/host_device.h"

namespace ringside::hopper {

// tanh(x) / x = sum of tanh[k] (x^2 - squared)^k where x^2 < squared: 1 where x is 0, and x times
// it good to `error`.
template <int kTerms>
struct NearRange {
  double squared, error, tanh[kTerms];
};
inline constexpr NearRange<5> kRanges[] = {
    {0.81,
     1.53e-6,
     {0.7958882068031347, -0.19060980049101983, 0.058131780275343464, -0.013418216495907227,
      0.010329714469274024}},
    {0.72,
     8.7e-7,
     {0.8135270836400351, -0.20133969335034044, 0.06282726763062312, -0.015932242006549396,
      0.011133512598803132}},
    {0.64,
     4.94e-7,
     {0.8300465795658549, -0.21165924663265706, 0.06751802431817866, -0.018449760811177253,
      0.011918698134620912}},
    {0.5625,
     2.64e-7,
     {0.8468656207941554, -0.22243662063718178, 0.07259079928158328, -0.021177271025899308,
      0.012750585172406757}},
    {0.49,
     1.34e-7,
     {0.8633827290419804, -0.23328787263889075, 0.07786910860212175, -0.024019303230961082,
      0.013599660834334195}},
    {0.36,
     2.83e-8,
     {0.8950826587003536, -0.25486063874841225, 0.08883931406186067, -0.029934679084697116,
      0.0153192075108329}}};
// Of scores that are so small that three terms do.
inline constexpr NearRange<3> kSmallRanges[] = {
    {0.115, 6.63e-7, {0.9633535282317176, -0.30433765430645454, 0.124585370362203}},
    {0.09, 2.87e-7, {0.9710429964915881, -0.3103678742677122, 0.12640676843429813}},
    {0.0625, 8.2e-8, {0.9796749766801587, -0.3171715961820608, 0.12846043096641105}}};

// The widest range that moves no logit by more than that, so that more rows are near altogether;
// none beside larger caps than the least range allows.
inline constexpr double kNearError = 1e-5;
template <int kTerms, int kCount>
const NearRange<kTerms>* widest(const NearRange<kTerms> (&ranges)[kCount], double softcap) {
  for (const NearRange<kTerms>& range : ranges)
    if (range.error * softcap <= kNearError) return &range;
  return nullptr;
}
// Beside caps of up to the first ordinary scores, of variance 1, are far now and then; up to the
// second most rows have one that is not small, and rows are not asked for these.
inline constexpr double kNoneIsNear = 5.5, kNoneIsSmall = 12;
inline const NearRange<5>* near_range(double softcap) {
  return softcap <= kNoneIsNear ? nullptr : widest(kRanges, softcap);
}
inline const NearRange<3>* small_range(double softcap) {
  return softcap <= kNoneIsSmall ? nullptr : widest(kSmallRanges, softcap);
}

// A range in units of q.k, to logits to base 2.
template <int kTerms>
struct NearScores {
  float squared;  // scores of smaller squares are near; negative: none are
  float terms[kTerms];

  NearScores() = default;
  // Scores are softmax_scale * q.k. None are near without a range, nor where float32 cannot hold
  // a term.
  NearScores(const NearRange<kTerms>* range, double softmax_scale, double softcap) : squared(-1) {
    if (range == nullptr) return;
    const double ratio = softmax_scale / softcap;
    const auto bound = static_cast<float>(range->squared / (ratio * ratio));
    bool holds = std::isnormal(bound);
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
struct NearSoftcap : NearScores<5> {
  NearScores<3> small;  // which are near, too
  float per_logit;      // from such logits to units of the cap, tanh's, or a last place more

  NearSoftcap() = default;
  NearSoftcap(double softmax_scale, double softcap)
      : NearScores(near_range(softcap), softmax_scale, softcap),
        small(small_range(softcap), softmax_scale, softcap),
        per_logit(inverse(static_cast<float>(1.4426950408889634 * softcap))) {
    if (!std::isnormal(per_logit)) squared = -1;
    small.squared = fminf(small.squared, squared);
  }

 private:
  // So that the cap is no less than one unit: what is at the cap has no gradient.
  static float inverse(float cap) {
    const float nearest = 1 / cap;
    return cap * nearest < 1 ? std::nextafter(nearest, INFINITY) : nearest;
  }
};

}  // namespace ringside::hopper
