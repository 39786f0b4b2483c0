// Softcap of scores that are not small beside the cap: one quotient for four of them.
#pragma once

#include <cmath>

#include "reference/support/host_device.h"

namespace ringside::hopper {

// cap tanh(x) = cap - 2 cap / (1 + e^2x) = cap + 1 / d, where d = unit (1 + e^2x) and unit is
// -1 / (2 cap). Inverses of four are products of the others and of the inverse of all.
struct FarSoftcap {
  // e^2x = 2^(q.k power). Of scores above `most` that is more than 2^kMostPower, which is as good
  // as infinite and yet small enough for the product of four.
  float power, most;
  float unit, cap;  // of logits to base 2
  static constexpr float kMostPower = 24;

  FarSoftcap() = default;
  // Scores are softmax_scale * q.k, of a positive scale.
  FarSoftcap(double softmax_scale, double softcap) {
    constexpr double kLog2OfE = 1.4426950408889634;
    power = static_cast<float>(2 * kLog2OfE * softmax_scale / softcap);
    most = static_cast<float>(softcap / (2 * kLog2OfE * softmax_scale) * kMostPower);
    cap = static_cast<float>(kLog2OfE * softcap);
    unit = static_cast<float>(-0.5 / (kLog2OfE * softcap));
  }
  // Whether the scale is above zero and float32 holds all of that, products of four and their
  // inverses.
  bool holds() const {
    return power > 0 && std::isnormal(power) && std::isnormal(most) && unit >= -0x1p7f &&
           unit <= -0x1p-31f;
  }

  RINGSIDE_HD_INLINE float denominator(float exponential) const {
    return fmaf(exponential, unit, unit);
  }
  // Of the denominators of four scores: what these are bent to, plus `shift` - cap.
  struct Four {
    float denominators[4], of_first, of_last;  // and the products of two

    explicit RINGSIDE_HD_INLINE Four(const float (&d)[4])
        : denominators{d[0], d[1], d[2], d[3]}, of_first(d[0] * d[1]), of_last(d[2] * d[3]) {}
    RINGSIDE_HD_INLINE float of_all() const { return of_first * of_last; }
    RINGSIDE_HD_INLINE void bend(float inverse_of_all, float shift, float (&bent)[4]) const {
      const float first = inverse_of_all * of_last, last = inverse_of_all * of_first;
      bent[0] = fmaf(first, denominators[1], shift), bent[1] = fmaf(first, denominators[0], shift);
      bent[2] = fmaf(last, denominators[3], shift), bent[3] = fmaf(last, denominators[2], shift);
    }
  };
};

}  // namespace ringside::hopper
