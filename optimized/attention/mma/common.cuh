// What the forward and the backward of the mma.sync family share: head dimensions and small
// helpers.
#pragma once

#include <type_traits>

#include "optimized/attention/heads.h"
#include "optimized/attention/launch.cuh"
#include "optimized/attention/mma/kernels.h"
#include "optimized/attention/mma/not_finite.cuh"
#include "optimized/attention/mma/shared_tile.h"
#include "optimized/attention/seen_pairs.cuh"
#include "optimized/device/processors.h"
#include "optimized/tables/block_walk.h"
#include "optimized/tables/ordered_float.h"

namespace ringside::mma {

inline constexpr float kLog2E = 1.4426950408889634f;

// Compiled head dimensions. Others run padded to the next pair: the columns beyond are zeros in
// shared memory, and are neither read from nor written to global memory.
template <int Qk, int V>
struct HeadDims {
  static constexpr int kQk = Qk, kV = V;
};

// Calls function(HeadDims<..>{}) with the smallest compiled pair that holds the shape.
template <typename Function>
auto with_head_dims(const AttentionShape& shape, Function function) {
  const int qk = shape.head_dim_qk, v = shape.head_dim_v, larger = qk > v ? qk : v;
  if (larger <= 64) return function(HeadDims<64, 64>{});
  if (larger <= 96) return function(HeadDims<96, 96>{});
  if (larger <= 128) return function(HeadDims<128, 128>{});
  if (qk <= 192 && v <= 128) return function(HeadDims<192, 128>{});
  if (larger <= 192) return function(HeadDims<192, 192>{});
  return function(HeadDims<256, 256>{});
}

template <typename Function>
auto with_element_type(ElementType type, Function function) {
  if (type == ElementType::float16) return function(__half{});
  return function(__nv_bfloat16{});
}

// cp.async moves 16 bytes: rows, heads and the matrix itself must begin at multiples of that.
inline bool is_aligned(const DeviceMatrix& matrix) {
  return reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.row_stride % 8 == 0 &&
         matrix.head_stride % 8 == 0;
}

template <typename T>
__device__ inline T* row_of(const DeviceMatrix& matrix, int64_t row, int head) {
  return static_cast<T*>(matrix.data) + row * matrix.row_stride + head * matrix.head_stride;
}

// A positive softmax scale is folded into the exponent, behind the running maximum. Any other one
// would turn or flatten the order of the scores, and one near 0 has no reciprocal: it is applied to
// them first, and 1 is folded.
__device__ inline bool folds_scale(const AttentionShape& shape) {
  return shape.softmax_scale > 1e-30f;
}
__device__ inline float folded_scale(const AttentionShape& shape) {
  return folds_scale(shape) ? shape.softmax_scale : 1;
}
template <int M, int N>
__device__ inline void apply_unfolded_scale(Accumulator (&scores)[M][N],
                                            const AttentionShape& shape) {
  if (folds_scale(shape)) return;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[m][n][i] *= shape.softmax_scale;
}

__device__ inline float quad_sum(float x) {  // over the four lanes that share a row
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// put(row, column, a, b, c, d) for a warp's rows, four columns at a time: neighbouring lanes swap
// halves of two groups of columns, so that each holds four neighbours.
template <int Dim, int Warps, int M, int N, typename Put>
__device__ inline void for_each_four(int rows, int dim, int warp_row, int first_column, float scale,
                                     const Accumulator (&sum)[M][N], Put put) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane % 2;
  const int lane_column = first_column + (odd ? 8 : 0) + lane % 4 / 2 * 4;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + 16 * m + 8 * half + lane / 4;
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        const float *left = &sum[m][n][2 * half], *right = &sum[m][n + 1][2 * half];
        const float x = __shfl_xor_sync(~0u, odd ? left[0] : right[0], 1);
        const float y = __shfl_xor_sync(~0u, odd ? left[1] : right[1], 1);
        const int column = lane_column + Dealt<Dim, Warps>::column(n);
        if (row >= rows || column >= dim) continue;
        if (odd)
          put(row, column, scale * x, scale * y, scale * right[0], scale * right[1]);
        else
          put(row, column, scale * left[0], scale * left[1], scale * x, scale * y);
      }
    }
}

// Adds a warp's rows to global memory. Atomic, as dq needs; dk and dv have one writer, for whom
// this is an addition that waits for no answer.
template <int Dim, int Warps, int M, int N>
__device__ inline void add_rows(const DeviceMatrix& to, int64_t first_row, int rows, int head,
                                int dim, int warp_row, int first_column, float scale,
                                const Accumulator (&sum)[M][N]) {
  float* begin = row_of<float>(to, first_row, head);
  for_each_four<Dim, Warps>(rows, dim, warp_row, first_column, scale, sum,
                            [&](int row, int column, float a, float b, float c, float d) {
                              add_4(begin + row * to.row_stride + column, a, b, c, d);
                            });
}

enum class Put { add, store, store_final };

// What becomes of a warp's rows: added in float32, stored in float32, or stored in T.
template <typename T, int Dim, int Warps, int M, int N>
__device__ inline void put_rows(Put put, const DeviceMatrix& to, int64_t first_row, int rows,
                                int head, int dim, int warp_row, int first_column, float scale,
                                const Accumulator (&sum)[M][N]) {
  if (put == Put::add) {
    add_rows<Dim, Warps>(to, first_row, rows, head, dim, warp_row, first_column, scale, sum);
    return;
  }
  float* begin = row_of<float>(to, first_row, head);
  T* final = row_of<T>(to, first_row, head);
  for_each_four<Dim, Warps>(rows, dim, warp_row, first_column, scale, sum,
                            [&](int row, int column, float a, float b, float c, float d) {
                              const int64_t at = row * to.row_stride + column;
                              if (put == Put::store)
                                *reinterpret_cast<float4*>(begin + at) = {a, b, c, d};
                              else
                                store_4(final + at, a, b, c, d);
                            });
}

// Hides the keys of a block that a query row does not see. numbers are [query rows][keys]; each
// lane of a quad asks the mask for one of their rows.
template <int M, int N>
__device__ inline void hide_unseen(Accumulator (&numbers)[M][N], float hidden, const WorkList& work,
                                   const WorkItem& item, int partner, int block_begin,
                                   int warp_row) {
  static_assert(M <= 2, "four lanes ask for at most four rows");
  const Segment k = work.partners[partner];
  const int lane = threadIdx.x % 32, mine = lane % (2 * M);
  const int row = item.begin + warp_row + mine / 2 * 16 + mine % 2 * 8 + lane / 4;
  const Interval seen = sequence_mask(work, item).visible_rows(k, item.own.position(row));
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int source = lane / 4 * 4 + 2 * m + half;
      const int begin = __shfl_sync(~0u, seen.begin, source) - block_begin - lane % 4 * 2;
      const unsigned size = __shfl_sync(~0u, seen.size(), source);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (unsigned(8 * n + i - begin) >= size) numbers[m][n][2 * half + i] = hidden;
    }
}

// True of every item of query rows. A kernel that asks before it begins has all of the item loaded
// at once, instead of one word after the other.
__device__ inline bool load_at_once(const WorkItem& item) { return is_sound(item); }

// Whether there is such an item: a launch may have a block for each that a list has room for. Both
// are loaded before either is looked at.
__device__ inline bool is_item(const WorkList& work, const WorkItem& item, int index) {
  return (index < *work.num_items) & (item.begin < item.end);
}

// Who does which item of a list: a block of threads has one, or goes on with every so-many-th. The
// latter is compiled apart: it takes registers from the loop over keys.
enum class Turns { one, many };

// visit(index of an item) for those of this block of threads, for head blockIdx.y.
template <Turns turns, typename Visit>
__device__ __forceinline__ void for_each_item(const WorkList& work, Visit visit) {
  if constexpr (turns == Turns::one) {
    visit(static_cast<int>(blockIdx.x));
  } else {
    for (int index = blockIdx.x; index < *work.num_items; index += gridDim.x) {
      visit(index);
      wait_for_copies();  // of an item that meets nothing
      __syncthreads();    // shared memory is used up
    }
  }
}

// Calls launch(grid, constant of Turns): blocks of threads for a list and each head.
template <typename Launch>
cudaError_t with_turns(const WorkList& work, int heads, Launch launch) {
  const int blocks = blocks_of_list(work, heads, processors_of_device());
  const dim3 grid(blocks, heads);
  if (blocks == work.max_items) return launch(grid, std::integral_constant<Turns, Turns::one>());
  return launch(grid, std::integral_constant<Turns, Turns::many>());
}

}  // namespace ringside::mma
