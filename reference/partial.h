// Merging partial attention results.
//
// A partial result of a row is (out, lse): the softmax average over the keys seen so far and the
// natural log of their summed exp(score). merge is associative and commutative; (0, -inf), "saw
// nothing", is its identity, and two empty partials merge to an empty one, never to NaN.
#pragma once

#include <cmath>

#include "reference/host_device.h"

namespace ringside {

template <typename T>
struct MergeWeights {
  T a, b;  // out = a*out_a + b*out_b
  T lse;
};

template <typename T>
RINGSIDE_HD MergeWeights<T> merge_weights(T lse_a, T lse_b) {
  const T top = lse_a > lse_b ? lse_a : lse_b;
  if (lse_a == -INFINITY && lse_b == -INFINITY) return {T(0), T(0), lse_a};  // -inf - -inf is NaN
  const T ea = std::exp(lse_a - top), eb = std::exp(lse_b - top), sum = ea + eb;
  return {ea / sum, eb / sum, top + std::log(sum)};
}

}  // namespace ringside
