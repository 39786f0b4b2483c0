// Arithmetic on registers that plain CUDA C++ has no name for.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ringside::hopper {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float inverse_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The natural logarithm of a positive number, to a last place or 3e-7: of a power of two and what
// is left, near 1, of which the approximation is good. In half the instructions of logf().
__device__ inline float log_fast(float x) {
  constexpr float kLog2 = 0.6931471805599453f;
  constexpr int kRootOfHalf = 0x3f3504f3, kBitsBelowExponent = 23;
  const int bits = __float_as_int(x), power = (bits - kRootOfHalf) >> kBitsBelowExponent;
  const float near_1 = __int_as_float(bits - (power << kBitsBelowExponent));
  const float found = fmaf(static_cast<float>(power), kLog2, kLog2 * log2_fast(near_1));
  // Neither of zero nor of what is infinite or not a number.
  return x > 1e-37f && x < INFINITY ? found : kLog2 * log2_fast(x);
}

// Without a branch, where a number is below zero: x times a factor; a and not b.
__device__ inline void multiply_if_negative(int number, float& x, float factor) {
  asm("{\n.reg .pred p;\nsetp.lt.s32 p, %2, 0;\n@p mul.f32 %0, %0, %1;\n}"
      : "+f"(x)
      : "f"(factor), "r"(number));
}
__device__ inline float if_negative(int number, float a, float b) {
  float x;
  asm("{\n.reg .pred p;\nsetp.lt.s32 p, %3, 0;\nselp.f32 %0, %1, %2, p;\n}"
      : "=f"(x)
      : "f"(a), "f"(b), "r"(number));
  return x;
}

// Without a branch: sets a bit where a word is above a bound; multiplies by zero where a bit is not
// set, as the unit of products has more time than that of choices.
__device__ inline void set_if_above(uint32_t& bits, uint32_t bit, uint32_t word, uint32_t bound) {
  asm("{\n.reg .pred p;\nsetp.gt.u32 p, %1, %2;\n@p or.b32 %0, %0, %3;\n}"
      : "+r"(bits)
      : "r"(word), "r"(bound), "r"(bit));
}
__device__ inline void zero_unless(uint32_t bits, uint32_t bit, float& x) {
  asm("{\n.reg .pred p;\n.reg .b32 set;\nand.b32 set, %1, %2;\nsetp.eq.u32 p, set, 0;\n"
      "@p mul.f32 %0, %0, 0f00000000;\n}"
      : "+f"(x)
      : "r"(bits), "r"(bit));
}

// So many bits, up to 32, from one on.
__device__ inline uint32_t ones(int first, int number) {
  uint32_t bits;
  asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(bits) : "r"(first), "r"(number));
  return bits;
}

template <typename T>
__device__ inline uint32_t pack(float low, float high);
template <>
__device__ inline uint32_t pack<__half>(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}
template <>
__device__ inline uint32_t pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}

// Four 8x8 matrices of 16-bit elements from a warp's registers; lanes 8i .. 8i + 7 say where the
// rows of matrix i go. kTransposed: its columns.
template <bool kTransposed>
__device__ inline void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  if constexpr (kTransposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

__device__ inline float quad_sum(float x) {  // over the four lanes that share a row
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

}  // namespace ringside::hopper
