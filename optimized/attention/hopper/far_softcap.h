// Softcap of scores that are not small beside the cap: an exponent, and no quotient.
#pragma once

#include <cmath>

#include "reference/support/host_device.h"

namespace ringside::hopper {

// tanh|x| = (1 - e) / (1 + e) = sum of kTanhOfExponential[k] e^k, where e = exp(-2 |x|): of scores
// that are not near, good to 2^-18.6 of the cap, and no more than the cap.
inline constexpr double kTanhOfExponential[] = {1,
                                                -1.999742995975436,
                                                1.9912933274326676,
                                                -1.9020181030767016,
                                                1.4932668956864208,
                                                -0.6479594180515336};

// The same in logits to base 2.
struct FarSoftcap {
  static constexpr int kTerms = 6;
  static_assert(sizeof(kTanhOfExponential) == kTerms * sizeof(double));
  float terms[kTerms];

  FarSoftcap() = default;
  explicit FarSoftcap(double softcap) {
    for (int k = 0; k < kTerms; ++k)
      terms[k] = static_cast<float>(1.4426950408889634 * softcap * kTanhOfExponential[k]);
  }

  // Of numbers that have the scores' signs, in place of their exponentials.
  template <int kScores>
  RINGSIDE_HD_INLINE void bend(const float (&signs)[kScores],
                               float (&exponentials)[kScores]) const {
    float bent[kScores];
    for (int i = 0; i < kScores; ++i) bent[i] = terms[kTerms - 1];
    for (int k = kTerms - 2; k >= 0; --k)
      for (int i = 0; i < kScores; ++i) bent[i] = fmaf(bent[i], exponentials[i], terms[k]);
    for (int i = 0; i < kScores; ++i) exponentials[i] = copysignf(bent[i], signs[i]);
  }
};

}  // namespace ringside::hopper
