// Infinities and NaN in tiles of blocks that are seen in part: seen_pairs.cuh tells why they are
// looked for.
#pragma once

#include "optimized/attention/finite_words.cuh"
#include "optimized/attention/mma/shared_tile.h"

namespace ringside::mma {

// visit(row, chunk of 16 bytes) for what this thread copies to a tile: load_tile().
template <int Dim, int Rows, int Threads, typename Visit>
__device__ inline void for_each_own_chunk(uint8_t* tile, Visit visit) {
  constexpr int kChunks = Dim / 8, kLanes = kChunks & -kChunks, kRowsAtOnce = Threads / kLanes;
  const int first_chunk = threadIdx.x % kLanes, first_row = threadIdx.x / kLanes;
#pragma unroll
  for (int pass = 0; pass < Rows / kRowsAtOnce; ++pass)
#pragma unroll
    for (int chunk = 0; chunk < kChunks; chunk += kLanes) {
      const int row = first_row + pass * kRowsAtOnce;
      visit(row, *reinterpret_cast<uint4*>(
                     tile + SharedTile<Dim>::offset(row, (first_chunk + chunk) * 16)));
    }
}

template <typename T, int Dim, int Rows, int Threads>
__device__ inline bool is_own_part_finite(uint8_t* tile) {
  FiniteCheck<T> check;
  for_each_own_chunk<Dim, Rows, Threads>(tile,
                                         [&](int, const uint4& chunk) { check.look_at(chunk); });
  return check.all_finite();
}

// Puts 0 in the place of what is not finite, in this thread's part of the rows of which is_wanted
// holds.
template <typename T, int Dim, int Rows, int Threads, typename IsWanted>
__device__ inline void drop_not_finite(uint8_t* tile, IsWanted is_wanted) {
  for_each_own_chunk<Dim, Rows, Threads>(tile, [&](int row, uint4& chunk) {
    if (is_wanted(row)) chunk = finite_part<T>(chunk);
  });
}

// sum += a^T . b as multiply_transposed, with 0 in the place of what is not finite in b.
template <typename T, int Keys, int ADim, int Dim, int Warps, int M, int N>
__device__ inline void multiply_finite(Accumulator (&sum)[M][N], uint32_t a_lane, uint32_t b_lane) {
#pragma unroll 1
  for (int k = 0; k < Keys; k += 16) {
    FragmentA a[M];
#pragma unroll
    for (int m = 0; m < M; ++m)
      load_matrices_transposed(a[m], SharedTile<ADim>::at(a_lane, k, 16 * m));
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      FragmentB b;
      load_matrices_transposed(b, SharedTile<Dim>::at(b_lane, k, Dealt<Dim, Warps>::column(n)));
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = finite_part<T>(b[i]);
      multiply_pair<T>(sum, a, b, n);
    }
  }
}

}  // namespace ringside::mma
