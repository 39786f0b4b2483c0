// What move.cu and move_home.cu share: elements of any type, and who does which cell.
#pragma once

#include <algorithm>

#include "optimized/device/elements.cuh"
#include "optimized/device/error.h"
#include "optimized/device/with_type.h"
#include "optimized/exchange/move.h"

namespace ringside::move {

inline constexpr int kThreads = 256, kLanes = 32;

__device__ inline int64_t offset_of(const DeviceMatrix& x, int64_t row, int head) {
  return row * x.row_stride + head * x.head_stride;
}

// N neighbouring elements of a row of a head, moved as one.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T of[N];
};

template <int N, typename From, typename To>
__device__ inline void move_pack(const From* from, To* to) {
  const auto x = *reinterpret_cast<const Pack<From, N>*>(from);
  Pack<To, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) assign(y.of[i], to_float(x.of[i]));
  *reinterpret_cast<Pack<To, N>*>(to) = y;
}

// Whether packs of n elements are aligned in a global array.
inline bool takes_packs(const GlobalArray& x, int n) {
  const int64_t bytes = std::min(16, n * bytes_of(x.type)), element = bytes_of(x.type);
  return x.dim % n == 0 && x.columns_at_home() % n == 0 &&
         reinterpret_cast<uintptr_t>(x.matrix.data) % bytes == 0 &&
         x.matrix.row_stride * element % bytes == 0 && x.matrix.head_stride * element % bytes == 0;
}

// visit(row, head) for the cells of one warp.
template <typename Visit>
__device__ inline void for_each_cell(int rows, int heads, Visit visit) {
  for (int cell = threadIdx.x / kLanes; cell < rows * heads; cell += kThreads / kLanes)
    visit(cell / heads, cell % heads);
}

inline unsigned blocks_of_rows(int rows) {  // a row a warp
  return static_cast<unsigned>((rows + kThreads / kLanes - 1) / (kThreads / kLanes));
}

}  // namespace ringside::move
