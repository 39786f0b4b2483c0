// Floats as integers of the same order, for a maximum by integer atomics: any order of the blocks
// gives the same bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "reference/support/host_device.h"

namespace ringside {

// a < b as floats exactly if so as keys; -0 comes just before 0, and a positive NaN behind +inf.
RINGSIDE_HD inline int32_t ordered_key(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

RINGSIDE_HD inline float from_ordered_key(int32_t key) {
  const int32_t bits = key >= 0 ? key : key ^ 0x7fffffff;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

}  // namespace ringside
