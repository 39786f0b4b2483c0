// The few machine instructions that plain CUDA C++ has no name for, and the fragments they work on.
//
// mma.sync m16n8k16 multiplies a 16x16 by a 16x8 matrix within one warp. With g = lane / 4 and
// c = lane % 4, a lane holds of
//
//   A  [16 rows][16 k]   a0 (g, 2c) a1 (g+8, 2c) a2 (g, 2c+8) a3 (g+8, 2c+8)    two neighbours each
//   B  [16 k][8 columns] b0 (2c, g) b1 (2c+8, g)                                two neighbours in k
//   D  [16 rows][8 cols] d0 d1 (g, 2c and 2c+1), d2 d3 (g+8, the same)          float32
//
// Two D side by side have the layout of one A: a product's result feeds the next one from
// registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ringside::mma {

using Accumulator = float[4];   // D above
using FragmentA = uint32_t[4];  // A above
using FragmentB = uint32_t[4];  // B for two neighbouring groups of 8 columns

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four 8x8 matrices of 16-bit elements; lanes 8i .. 8i+7 say where the rows of matrix i lie.
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

__device__ inline void load_matrices_transposed(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

template <typename T>
__device__ inline void multiply_add(Accumulator& d, const FragmentA& a, uint32_t b0, uint32_t b1);

template <>
__device__ inline void multiply_add<__half>(Accumulator& d, const FragmentA& a, uint32_t b0,
                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void multiply_add<__nv_bfloat16>(Accumulator& d, const FragmentA& a, uint32_t b0,
                                                   uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
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

// 16 bytes from global to shared memory in the background; zeros, and no read, where not `valid`.
__device__ inline void copy_16_async(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0));
}

__device__ inline void copy_4_async(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 4 : 0));
}

// Copies that this thread started have landed; a barrier then says so of every thread's.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A barrier among `threads` threads, whole warps; numbers 1 to 15, as 0 is __syncthreads.
__device__ inline void synchronize(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger of two; NaN if one of them is.
__device__ inline float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// Four neighbours (8-byte aligned) in a 16-bit type.
template <typename T>
__device__ inline void store_4(T* to, float a, float b, float c, float d) {
  *reinterpret_cast<uint2*>(to) = {pack<T>(a, b), pack<T>(c, d)};
}

// Adds four neighbours (16-byte aligned) to global memory, each atomically, and waits for no
// answer.
__device__ inline void add_4(float* to, float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
#else
  atomicAdd(to, a), atomicAdd(to + 1, b), atomicAdd(to + 2, c), atomicAdd(to + 3, d);
#endif
}

}  // namespace ringside::mma
