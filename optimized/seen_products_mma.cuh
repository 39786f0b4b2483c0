// Products of which pairs that are not seen take no part, also where a factor is infinite or NaN.
//
// A weight of 0 hides finite values only: 0 times an infinity or NaN is NaN. A kernel therefore
// looks at operands before a product, or at sums before it writes them; where it finds a "wild"
// value (infinite or NaN) its item begins again, carefully: the tensor cores meet 0 in the place of
// such values, and the pairs that are seen meet the value itself, one by one. What is finite keeps
// its bits. Blocks that are seen as a whole need none of this.
#pragma once

#include "optimized/shared_tile.h"

namespace ringside::mma {

// Whether a sum is infinite or NaN, as a wild value that a weight of 0 has met leaves it: 0 * x is
// NaN then, and so are sums with it.
template <int M, int N>
__device__ inline bool is_wild(const Accumulator (&sum)[M][N]) {
  Accumulator look = {};
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) look[i] = fmaf(sum[m][n][i], 0.0f, look[i]);
  return look[0] + look[1] + (look[2] + look[3]) != 0;
}

template <typename T>
struct TypeOfPair;
template <>
struct TypeOfPair<__half> {
  using Pair = __half2;
  static constexpr uint32_t kExponent = 0x7c00;
};
template <>
struct TypeOfPair<__nv_bfloat16> {
  using Pair = __nv_bfloat162;
  static constexpr uint32_t kExponent = 0x7f80;
};

template <typename T>
__device__ inline float2 unpack(uint32_t two) {
  const auto& pair = reinterpret_cast<const typename TypeOfPair<T>::Pair&>(two);
  return {static_cast<float>(pair.x), static_cast<float>(pair.y)};
}

__device__ inline uint32_t load_shared(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}

__device__ inline uint4 load_shared_16(uint32_t address) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address));
  return x;
}

// Whether what this thread has copied into a tile (see load_tile) holds a wild value. Before a
// barrier: a thread sees its own copies when they have landed.
template <typename T, int Dim, int Rows, int Threads>
__device__ inline bool copied_wild(uint32_t tile) {
  using Pair = typename TypeOfPair<T>::Pair;
  constexpr int kChunks = Dim / 8, kLanes = kChunks & -kChunks, kRowsAtOnce = Threads / kLanes;
  const int first_chunk = threadIdx.x % kLanes, first_row = threadIdx.x / kLanes;
  const Pair zero = {T(0.0f), T(0.0f)};
  Pair sum[2] = {zero, zero};
#pragma unroll
  for (int pass = 0; pass < Rows / kRowsAtOnce; ++pass)
#pragma unroll
    for (int chunk = 0; chunk < kChunks; chunk += kLanes) {
      const uint4 x = load_shared_16(
          tile + Tile<Dim>::offset(first_row + pass * kRowsAtOnce, (first_chunk + chunk) * 16));
      sum[0] = __hfma2(reinterpret_cast<const Pair&>(x.x), zero, sum[0]);
      sum[1] = __hfma2(reinterpret_cast<const Pair&>(x.y), zero, sum[1]);
      sum[0] = __hfma2(reinterpret_cast<const Pair&>(x.z), zero, sum[0]);
      sum[1] = __hfma2(reinterpret_cast<const Pair&>(x.w), zero, sum[1]);
    }
  const Pair both = __hadd2(sum[0], sum[1]);
  return static_cast<float>(both.x) + static_cast<float>(both.y) != 0;
}

// Puts 0 in the place of wild values; says whether there were any.
template <typename T>
__device__ inline bool tame(FragmentB& two_pairs) {
  constexpr uint32_t kLow = TypeOfPair<T>::kExponent, kHigh = kLow << 16;
  bool wild = false;
#pragma unroll
  for (uint32_t& two : two_pairs) {
    if ((two & kLow) == kLow) two &= 0xffff0000, wild = true;
    if ((two & kHigh) == kHigh) two &= 0x0000ffff, wild = true;
  }
  return wild;
}

// Where the right operand of a product begins, in a tile.
struct Corner {
  uint32_t tile;
  int row, column;
};

// sum[m][n] += weight * value for the pairs that are seen and the values that are wild, of 16 rows
// of b: seen(i, k) tells it of row i of the warp's sum and row k of b, counted from the corner.
template <typename T, int Dim, int Warps, int M, int N, typename Seen>
__device__ inline void add_wild(Accumulator (&sum)[M][N], const FragmentA (&a)[M], Corner b,
                                Seen seen) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int k = 0; k < 16; ++k) {
    float weight[M][2];
    bool takes_part[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t mine = k < 8 ? a[m][half] : a[m][2 + half];
        const float2 two = unpack<T>(__shfl_sync(~0u, mine, lane / 4 * 4 + k % 8 / 2));
        weight[m][half] = k % 2 == 0 ? two.x : two.y;
        takes_part[m][half] = seen(16 * m + 8 * half + lane / 4, k);
      }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int column = b.column + Dealt<Dim, Warps>::column(n) + lane % 4 * 2;
      const float2 two = unpack<T>(load_shared(b.tile + Tile<Dim>::offset(b.row + k, 2 * column)));
      const bool wild[2] = {!isfinite(two.x), !isfinite(two.y)};
      if (!wild[0] && !wild[1]) continue;
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (!takes_part[m][half]) continue;
          if (wild[0]) sum[m][n][2 * half] += weight[m][half] * two.x;
          if (wild[1]) sum[m][n][2 * half + 1] += weight[m][half] * two.y;
        }
    }
  }
}

// sum += a . b over 16 rows of b, for the pairs that are seen; the weights of others are 0.
template <typename T, int Dim, int Warps, int M, int N, typename Seen>
__device__ inline void multiply_seen(Accumulator (&sum)[M][N], const FragmentA (&a)[M], Corner b,
                                     Seen seen) {
  const uint32_t lane_address = Tile<Dim>::lane_down(b.tile, b.row, b.column);
  bool wild = false;
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    FragmentB of_b;
    load_matrices_transposed(of_b, Tile<Dim>::at(lane_address, 0, Dealt<Dim, Warps>::column(n)));
    wild |= tame<T>(of_b);
    multiply_pair<T>(sum, a, of_b, n);
  }
  if (__any_sync(~0u, wild)) add_wild<T, Dim, Warps>(sum, a, b, seen);
}

// As multiply_columns.
template <typename T, int Dim, int Warps, int M, int N, int K, typename Seen>
__device__ inline void multiply_seen_columns(Accumulator (&sum)[M][N], const FragmentA (&a)[K][M],
                                             Corner b, Seen seen) {
#pragma unroll 1
  for (int k = 0; k < K; ++k) {
    FragmentA of_k[M];
#pragma unroll
    for (int i = 0; i < K; ++i)
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int word = 0; word < 4; ++word)
          if (i == k || i == 0) of_k[m][word] = a[i][m][word];
    multiply_seen<T, Dim, Warps>(sum, of_k, {b.tile, b.row + 16 * k, b.column},
                                 [&](int i, int row) { return seen(i, 16 * k + row); });
  }
}

// As multiply_tiles.
template <typename T, int ADim, int K, int Dim, int Warps, int M, int N, typename Seen>
__device__ inline void multiply_seen_tiles(Accumulator (&sum)[M][N], uint32_t a_lane, Corner b,
                                           Seen seen) {
#pragma unroll 1
  for (int k = 0; k < K; k += 16) {
    FragmentA a[M];
#pragma unroll
    for (int m = 0; m < M; ++m) load_matrices(a[m], Tile<ADim>::at(a_lane, 16 * m, k));
    multiply_seen<T, Dim, Warps>(sum, a, {b.tile, b.row + k, b.column},
                                 [&](int i, int row) { return seen(i, k + row); });
  }
}

// As multiply_transposed.
template <typename T, int Keys, int ADim, int Dim, int Warps, int M, int N, typename Seen>
__device__ inline void multiply_seen_transposed(Accumulator (&sum)[M][N], uint32_t a_lane, Corner b,
                                                Seen seen) {
#pragma unroll 1
  for (int k = 0; k < Keys; k += 16) {
    FragmentA a[M];
#pragma unroll
    for (int m = 0; m < M; ++m) load_matrices_transposed(a[m], Tile<ADim>::at(a_lane, k, 16 * m));
    multiply_seen<T, Dim, Warps>(sum, a, {b.tile, b.row + k, b.column},
                                 [&](int i, int row) { return seen(i, k + row); });
  }
}

}  // namespace ringside::mma
