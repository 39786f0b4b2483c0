// Merging partial attention results.
//
// A partial result of a row is (out, lse): the softmax average over the keys seen so far and the
// natural log of their summed exp(score). merge is associative and commutative; (0, -inf), "saw
// nothing", is its identity, and two empty partials merge to an empty one, never to NaN.
//
// lse is NaN or +inf where a score was, and stays so; then out is NaN. An infinite out stays
// infinite: what saw something keeps a weight, however small, and 0 * inf = NaN does not occur.
#pragma once

#include <cmath>
#include <limits>

#include "reference/support/host_device.h"

namespace ringside {

// The least that a float64 weight is rounded to where a score is not -inf.
inline constexpr double kLeastWeight = 1e-300;  // far below what a sum of weights resolves

template <typename T>
RINGSIDE_HD T larger(T a, T b) {  // NaN if one of them is
  return a >= b || a != a ? a : b;
}

template <typename T>
struct MergeWeights {
  T a, b;  // out = a*out_a + b*out_b
  T lse;
};

// Device code may read a constant, and not call the function that it comes from.
template <typename T>
inline constexpr T kSmallestNormal = std::numeric_limits<T>::min();

template <typename T>
RINGSIDE_HD MergeWeights<T> merge_weights(T lse_a, T lse_b) {
  const T top = larger(lse_a, lse_b), least = kSmallestNormal<T>;
  if (top == -INFINITY) return {T(0), T(0), top};
  const T ea = lse_a == top ? T(1) : std::exp(lse_a - top);  // inf - inf is NaN
  const T eb = lse_b == top ? T(1) : std::exp(lse_b - top), sum = ea + eb;
  const T a = ea / sum, b = eb / sum;
  return {lse_a > -INFINITY && a < least ? least : a, lse_b > -INFINITY && b < least ? least : b,
          top + std::log(sum)};
}

}  // namespace ringside
