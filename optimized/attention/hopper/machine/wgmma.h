// Products of matrices by four warps together (wgmma): D [64 rows][N columns] += A B, float32 sums
// of 16-bit elements, 16 deep an instruction. Asynchronous: see begin_products().
//
// D lies in registers. Warp w of the four holds rows 16w .. 16w + 15; with g = lane / 4 and
// c = lane % 4 a lane holds of each group n of 8 columns
//
//   d[4n], d[4n + 1]       (16w + g, 8n + 2c and the next)
//   d[4n + 2], d[4n + 3]   (16w + g + 8, the same)
//
// A in registers is laid out as D: two groups of 8 columns, packed, are a slice 16 deep.
// Operands in shared memory: descriptor.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "optimized/attention/hopper/machine/descriptor.h"

namespace ringside::hopper {

// Before the first product, behind every wait for a barrier, and after other code has touched
// registers of a product.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Products since the last call form a group.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all but the last kLeft groups are done.
template <int kLeft>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Nothing, which the compiler takes for a change of the registers: it moves no use of them to the
// other side of a wait.
template <int N>
__device__ inline void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <typename T, int N>
struct Product;  // of 64 rows and N columns

#define RINGSIDE_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RINGSIDE_16(d, i) \
  RINGSIDE_4(d, i), RINGSIDE_4(d, i + 4), RINGSIDE_4(d, i + 8), RINGSIDE_4(d, i + 12)
#define RINGSIDE_SUMS_16(d) RINGSIDE_16(d, 0)
#define RINGSIDE_SUMS_32(d) RINGSIDE_16(d, 0), RINGSIDE_16(d, 16)
#define RINGSIDE_SUMS_48(d) RINGSIDE_SUMS_32(d), RINGSIDE_16(d, 32)
#define RINGSIDE_SUMS_64(d) RINGSIDE_SUMS_48(d), RINGSIDE_16(d, 48)
#define RINGSIDE_SUMS_96(d) RINGSIDE_SUMS_64(d), RINGSIDE_16(d, 64), RINGSIDE_16(d, 80)
#define RINGSIDE_SUMS_128(d)                                                       \
  RINGSIDE_SUMS_64(d), RINGSIDE_16(d, 64), RINGSIDE_16(d, 80), RINGSIDE_16(d, 96), \
      RINGSIDE_16(d, 112)

#define RINGSIDE_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RINGSIDE_NAMES_32                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RINGSIDE_NAMES_48                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define RINGSIDE_NAMES_64                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RINGSIDE_NAMES_96                                             \
  RINGSIDE_NAMES_64                                                   \
  ", "                                                                \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, " \
  "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, " \
  "%90, %91, %92, %93, %94, %95"
#define RINGSIDE_NAMES_128                                             \
  RINGSIDE_NAMES_64                                                    \
  ", "                                                                 \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "  \
  "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "  \
  "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, "     \
  "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
  "%124, %125, %126, %127"

// multiply: A and B in shared memory, given by descriptors of their slices, or A in registers.
// kA, kB: how they lie. Without `adds`, D is overwritten.
#define RINGSIDE_PRODUCT(Type, name, N, R, a0, a1, a2, a3, b_ss, s_ss, ta, tb_ss, b_rs, s_rs,      \
                         tb_rs)                                                                    \
  template <>                                                                                      \
  struct Product<Type, N> {                                                                        \
    template <Deep kA, Deep kB>                                                                    \
    __device__ static void multiply(float (&d)[R], uint64_t a, uint64_t b, bool adds) {            \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " s_ss                                        \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name                 \
                   " {" RINGSIDE_NAMES_##R "}, " a0 ", " b_ss ", p, 1, 1, " ta ", " tb_ss ";\n}\n" \
                   : RINGSIDE_SUMS_##R(d)                                                          \
                   : "l"(a), "l"(b), "r"(int{adds}), "n"(int{kA == Deep::down_rows}),              \
                     "n"(int{kB == Deep::down_rows}));                                             \
    }                                                                                              \
    template <Deep kB>                                                                             \
    __device__ static void multiply(float (&d)[R], const uint32_t (&a)[4], uint64_t b,             \
                                    bool adds) {                                                   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " s_rs                                        \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name                 \
                   " {" RINGSIDE_NAMES_##R "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_rs            \
                                           ", p, 1, 1, " tb_rs ";\n}\n"                            \
                   : RINGSIDE_SUMS_##R(d)                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{adds}),           \
                     "n"(int{kB == Deep::down_rows}));                                             \
    }                                                                                              \
  };

RINGSIDE_PRODUCT(__nv_bfloat16, "bf16", 32, 16, "%16", "%17", "%18", "%19", "%17", "%18", "%19",
                 "%20", "%20", "%21", "%22")
RINGSIDE_PRODUCT(__nv_bfloat16, "bf16", 64, 32, "%32", "%33", "%34", "%35", "%33", "%34", "%35",
                 "%36", "%36", "%37", "%38")
RINGSIDE_PRODUCT(__nv_bfloat16, "bf16", 96, 48, "%48", "%49", "%50", "%51", "%49", "%50", "%51",
                 "%52", "%52", "%53", "%54")
RINGSIDE_PRODUCT(__nv_bfloat16, "bf16", 128, 64, "%64", "%65", "%66", "%67", "%65", "%66", "%67",
                 "%68", "%68", "%69", "%70")
RINGSIDE_PRODUCT(__nv_bfloat16, "bf16", 192, 96, "%96", "%97", "%98", "%99", "%97", "%98", "%99",
                 "%100", "%100", "%101", "%102")
RINGSIDE_PRODUCT(__nv_bfloat16, "bf16", 256, 128, "%128", "%129", "%130", "%131", "%129", "%130",
                 "%131", "%132", "%132", "%133", "%134")
RINGSIDE_PRODUCT(__half, "f16", 32, 16, "%16", "%17", "%18", "%19", "%17", "%18", "%19", "%20",
                 "%20", "%21", "%22")
RINGSIDE_PRODUCT(__half, "f16", 64, 32, "%32", "%33", "%34", "%35", "%33", "%34", "%35", "%36",
                 "%36", "%37", "%38")
RINGSIDE_PRODUCT(__half, "f16", 96, 48, "%48", "%49", "%50", "%51", "%49", "%50", "%51", "%52",
                 "%52", "%53", "%54")
RINGSIDE_PRODUCT(__half, "f16", 128, 64, "%64", "%65", "%66", "%67", "%65", "%66", "%67", "%68",
                 "%68", "%69", "%70")
RINGSIDE_PRODUCT(__half, "f16", 192, 96, "%96", "%97", "%98", "%99", "%97", "%98", "%99", "%100",
                 "%100", "%101", "%102")
RINGSIDE_PRODUCT(__half, "f16", 256, 128, "%128", "%129", "%130", "%131", "%129", "%130", "%131",
                 "%132", "%132", "%133", "%134")

#undef RINGSIDE_PRODUCT
#undef RINGSIDE_NAMES_16
#undef RINGSIDE_NAMES_32
#undef RINGSIDE_NAMES_48
#undef RINGSIDE_NAMES_64
#undef RINGSIDE_NAMES_96
#undef RINGSIDE_NAMES_128
#undef RINGSIDE_4
#undef RINGSIDE_16
#undef RINGSIDE_SUMS_16
#undef RINGSIDE_SUMS_32
#undef RINGSIDE_SUMS_48
#undef RINGSIDE_SUMS_64
#undef RINGSIDE_SUMS_96
#undef RINGSIDE_SUMS_128

}  // namespace ringside::hopper
