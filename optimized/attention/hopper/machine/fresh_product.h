// The first step of a product whose result need not be cleared: what its registers held before is
// dead, which the wrappers of wgmma.h, whose registers are read as well, cannot tell the compiler.
#pragma once

#include "optimized/attention/hopper/machine/wgmma.h"

namespace ringside::hopper {

#define RINGSIDE_4(d, i) "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define RINGSIDE_16(d, i) \
  RINGSIDE_4(d, i), RINGSIDE_4(d, i + 4), RINGSIDE_4(d, i + 8), RINGSIDE_4(d, i + 12)
#define RINGSIDE_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RINGSIDE_NAMES_32 \
  RINGSIDE_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RINGSIDE_SUMS_16 RINGSIDE_16(d, 0)
#define RINGSIDE_SUMS_32 RINGSIDE_16(d, 0), RINGSIDE_16(d, 16)
#define RINGSIDE_FRESH_PRODUCT(type, N, R, a0, b0, ta, tb)                                    \
  asm volatile(                                                                               \
      "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" RINGSIDE_NAMES_##R \
      "}, " a0 ", " b0 ", p, 1, 1, " ta ", " tb ";\n}\n"                                      \
      : RINGSIDE_SUMS_##R                                                                     \
      : "l"(a), "l"(b), "n"(int{kA == Deep::down_rows}), "n"(int{kB == Deep::down_rows}))

// d [64][64] or [64][32] = a . b, 16 deep; both in shared memory.
template <typename T, Deep kA, Deep kB>
__device__ inline void multiply_afresh(float (&d)[32], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    RINGSIDE_FRESH_PRODUCT("f16", 64, 32, "%32", "%33", "%34", "%35");
  else
    RINGSIDE_FRESH_PRODUCT("bf16", 64, 32, "%32", "%33", "%34", "%35");
}
template <typename T, Deep kA, Deep kB>
__device__ inline void multiply_afresh(float (&d)[16], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    RINGSIDE_FRESH_PRODUCT("f16", 32, 16, "%16", "%17", "%18", "%19");
  else
    RINGSIDE_FRESH_PRODUCT("bf16", 32, 16, "%16", "%17", "%18", "%19");
}

#undef RINGSIDE_FRESH_PRODUCT
#undef RINGSIDE_SUMS_16
#undef RINGSIDE_SUMS_32
#undef RINGSIDE_NAMES_16
#undef RINGSIDE_NAMES_32
#undef RINGSIDE_16
#undef RINGSIDE_4

// The same, so many slices of 16 deep, which lie where the functions say.
template <typename T, Deep kA, Deep kB, int kSlices, int R>
__device__ __forceinline__ void multiply_slices(float (&d)[R], uint64_t a, uint32_t a_panel,
                                                uint64_t b, uint32_t b_panel) {
  multiply_afresh<T, kA, kB>(d, a, b);
#pragma unroll
  for (int k = 1; k < kSlices; ++k)
    Product<T, 2 * R>::template multiply<kA, kB>(d, moved(a, slice_offset<kA>(k, a_panel)),
                                                 moved(b, slice_offset<kB>(k, b_panel)), true);
}

}  // namespace ringside::hopper
