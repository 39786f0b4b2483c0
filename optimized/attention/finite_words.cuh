// Words of two 16-bit numbers: whether they are finite, and what they are without what is not.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace ringside {

template <typename T>
using TwoOf = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

// With 0 for what is not finite.
template <typename T>
__device__ inline uint32_t finite_part(uint32_t two) {
  constexpr uint32_t kExponent = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
  const uint32_t low = (two & kExponent) == kExponent ? 0 : two & 0xffff;
  const uint32_t high = (two >> 16 & kExponent) == kExponent ? 0 : two & 0xffff0000;
  return low | high;
}
template <typename T>
__device__ inline uint4 finite_part(const uint4& chunk) {
  return {finite_part<T>(chunk.x), finite_part<T>(chunk.y), finite_part<T>(chunk.z),
          finite_part<T>(chunk.w)};
}

// Looks at 16 bytes at a time, an instruction a word: 0 times a number that is not finite is NaN,
// and stays so in a sum.
template <typename T>
class FiniteCheck {
 public:
  __device__ void look_at(const uint4& chunk) {
    zero_[0] = __hfma2(two(chunk.x), two(0), zero_[0]);
    zero_[1] = __hfma2(two(chunk.y), two(0), zero_[1]);
    zero_[0] = __hfma2(two(chunk.z), two(0), zero_[0]);
    zero_[1] = __hfma2(two(chunk.w), two(0), zero_[1]);
  }
  __device__ bool all_finite() const { return __hbeq2(__hadd2(zero_[0], zero_[1]), two(0)); }

 private:
  __device__ static TwoOf<T> two(const uint32_t& word) {
    return reinterpret_cast<const TwoOf<T>&>(word);
  }
  TwoOf<T> zero_[2] = {two(0), two(0)};
};

}  // namespace ringside
