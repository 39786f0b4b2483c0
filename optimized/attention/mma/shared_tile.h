// Tiles of 16-bit elements in shared memory, and the warp products that read them.
//
// A tile is [rows][Dim], cut in 16-byte chunks. Within a row the chunks are permuted by an XOR with
// the row number, so that the eight rows which ldmatrix reads at once lie in different banks. The
// first chunk of a fragment moves by whole k-steps only, and therefore one lane address per operand
// serves every fragment of a tile: an XOR and an immediate offset away.
#pragma once

#include "optimized/attention/mma/ptx.h"

namespace ringside::mma {

template <int Dim>
struct SharedTile {
  static_assert(Dim % 64 == 0 || Dim % 32 == 0, "Dim must be a multiple of 32");
  static constexpr int kPitch = 2 * Dim;                  // bytes of a row
  static constexpr int kSpan = Dim % 64 == 0 ? 128 : 64;  // chunks permute within so many bytes
  static constexpr int bytes(int rows) { return rows * kPitch; }

  __device__ static uint32_t swizzle(int row) {  // on the byte offset within a row
    return (kSpan == 128 ? row & 7 : (row >> 1) & 3) * 16;
  }
  __device__ static uint32_t offset(int row, int byte) {
    return row * kPitch + (byte ^ swizzle(row));
  }

  // Where a lane reads for the fragment at (0, 0). "Down": matrices 0, 1 lie below each other, then
  // 2, 3 beside them; "across": 0, 1 beside each other, then 2, 3 below.
  __device__ static uint32_t lane_down(uint32_t tile, int first_row = 0, int first_column = 0) {
    const int lane = threadIdx.x % 32;
    return tile + offset(first_row + lane % 16, 2 * first_column + lane / 16 * 16);
  }
  __device__ static uint32_t lane_across(uint32_t tile, int first_row = 0, int first_column = 0) {
    const int lane = threadIdx.x % 32;
    return tile +
           offset(first_row + lane / 16 * 8 + lane % 8, 2 * first_column + lane / 8 % 2 * 16);
  }
  // The same for the fragment `row` (a multiple of 8) further down and `column` (of 16) to the
  // right.
  __device__ static uint32_t at(uint32_t lane_address, int row, int column) {
    const int byte = 2 * column;
    return (lane_address ^ (byte % kSpan)) + byte / kSpan * kSpan + row * kPitch;
  }
};

// Starts copying [Rows][Dim] elements into a tile. Rows from `rows` on and columns from `dim` on
// are not read: they become zeros, and whatever lies there in memory cannot spread.
template <int Dim, int Rows, int Threads, typename T>
__device__ inline void load_tile(uint32_t tile, const T* from, int64_t row_stride, int rows,
                                 int dim) {
  constexpr int kChunks = Dim / 8, kLanes = kChunks & -kChunks, kRowsAtOnce = Threads / kLanes;
  static_assert(Rows % kRowsAtOnce == 0, "a tile must be a whole number of passes");
  const int first_chunk = threadIdx.x % kLanes, first_row = threadIdx.x / kLanes;
  from += first_row * row_stride + first_chunk * 8;
#pragma unroll
  for (int pass = 0; pass < Rows / kRowsAtOnce; ++pass) {
    const int row = first_row + pass * kRowsAtOnce;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; chunk += kLanes) {
      const bool valid = row < rows && (first_chunk + chunk) * 8 < dim;
      copy_16_async(tile + SharedTile<Dim>::offset(row, (first_chunk + chunk) * 16),
                    from + chunk * 8, valid);
    }
    from += kRowsAtOnce * row_stride;
  }
}

template <int M, int N>
__device__ inline void clear(Accumulator (&sum)[M][N]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n) sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
}

// sum[m][n] += a . b for one k-step and two neighbouring groups of 8 columns.
template <typename T, int M, int N>
__device__ inline void multiply_pair(Accumulator (&sum)[M][N], const FragmentA (&a)[M],
                                     const FragmentB& b, int n) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
    multiply_add<T>(sum[m][n], a[m], b[0], b[1]);
    multiply_add<T>(sum[m][n + 1], a[m], b[2], b[3]);
  }
}

// sum += a . b^T over Dim: a [16 M][Dim] from lane_down, b [8 N][Dim] from lane_across.
template <typename T, int Dim, int M, int N>
__device__ inline void multiply_rows(Accumulator (&sum)[M][N], uint32_t a_lane, uint32_t b_lane) {
#pragma unroll
  for (int k = 0; k < Dim; k += 16) {
    FragmentA a[M];
#pragma unroll
    for (int m = 0; m < M; ++m) load_matrices(a[m], SharedTile<Dim>::at(a_lane, 16 * m, k));
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      FragmentB b;
      load_matrices(b, SharedTile<Dim>::at(b_lane, 8 * n, k));
      multiply_pair<T>(sum, a, b, n);
    }
  }
}

// The columns of a tile dealt to Warps warps, so that each gets an equal piece of every span. With
// the warp's own piece in its lane address, group n of 8 columns begins at:
template <int Dim, int Warps>
struct Dealt {
  static constexpr int kSpanColumns = SharedTile<Dim>::kSpan / 2, kPiece = kSpanColumns / Warps;
  static_assert(Warps == 1 || kPiece % 16 == 0, "a piece must hold whole pairs of groups");
  __device__ static constexpr int column(int n) {
    return Warps == 1 ? 8 * n : 8 * n / kPiece * kSpanColumns + 8 * n % kPiece;
  }
  __device__ static int first_column(int warp) { return warp * kPiece; }
};

// sum += a . b: a [16 M][16 K] in registers, b [16 K][8 N dealt columns of Dim] from lane_down.
template <typename T, int Dim, int Warps, int M, int N, int K>
__device__ inline void multiply_columns(Accumulator (&sum)[M][N], const FragmentA (&a)[K][M],
                                        uint32_t b_lane) {
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      FragmentB b;
      load_matrices_transposed(b,
                               SharedTile<Dim>::at(b_lane, 16 * k, Dealt<Dim, Warps>::column(n)));
      multiply_pair<T>(sum, a[k], b, n);
    }
}

// sum += a . b over K: a [16 M][K columns of ADim] from lane_down, b as above.
template <typename T, int ADim, int K, int Dim, int Warps, int M, int N>
__device__ inline void multiply_tiles(Accumulator (&sum)[M][N], uint32_t a_lane, uint32_t b_lane) {
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    FragmentA a[1][M];
#pragma unroll
    for (int m = 0; m < M; ++m) load_matrices(a[0][m], SharedTile<ADim>::at(a_lane, 16 * m, k));
    multiply_columns<T, Dim, Warps>(sum, a, SharedTile<Dim>::at(b_lane, k, 0));
  }
}

// sum += a^T . b over Keys rows: a [Keys][16 M columns of ADim] from lane_across, b as above.
template <typename T, int Keys, int ADim, int Dim, int Warps, int M, int N>
__device__ inline void multiply_transposed(Accumulator (&sum)[M][N], uint32_t a_lane,
                                           uint32_t b_lane) {
#pragma unroll
  for (int k = 0; k < Keys; k += 16) {
    FragmentA a[1][M];
#pragma unroll
    for (int m = 0; m < M; ++m)
      load_matrices_transposed(a[0][m], SharedTile<ADim>::at(a_lane, k, 16 * m));
    multiply_columns<T, Dim, Warps>(sum, a, SharedTile<Dim>::at(b_lane, k, 0));
  }
}

// A product's result, rounded to T, as the left operand of the next.
template <typename T, int M, int N>
__device__ inline void as_left_operand(FragmentA (&a)[N / 2][M], const Accumulator (&from)[M][N]) {
#pragma unroll
  for (int k = 0; k < N / 2; ++k)
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const Accumulator &left = from[m][2 * k], &right = from[m][2 * k + 1];
      a[k][m][0] = pack<T>(left[0], left[1]);
      a[k][m][1] = pack<T>(left[2], left[3]);
      a[k][m][2] = pack<T>(right[0], right[1]);
      a[k][m][3] = pack<T>(right[2], right[3]);
    }
}

}  // namespace ringside::mma
