// The larger of two numbers that does not lose NaN: fmaxf would take the other. One instruction.
#pragma once

namespace ringside {

__device__ inline float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

}  // namespace ringside
