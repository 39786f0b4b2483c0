// What the float32 kernels share: square tiles of rows in shared memory and the products of them.
//
// A block of 256 threads forms a 16 x 16 square. Of a rows x rows tile of scores, thread (y, x)
// holds rows y + 16a and columns x + 16b; of a rows x D tile of outputs, rows y + 16a and columns
// 64c + 4x + 0..3. Head dimensions are padded with zeros to D = 64, 128 or 256. No Tensor Cores, no
// fast-math: this family is the truth on the GPU, and is read next to
// reference/attention/tile_attention.cpp.
//
// Pairs that are not seen have the weight 0, and so add nothing where all rows are finite. Where a
// tile holds an infinity or a NaN they are left out one by one: 0 times that is NaN.
#pragma once

#include "optimized/attention/heads.h"
#include "optimized/attention/launch.cuh"
#include "optimized/device/processors.h"
#include "optimized/tables/ordered_float.h"
#include "reference/attention/score_model.h"
#include "reference/rows/seen_rows.h"

namespace ringside::f32 {

constexpr int kThreads = 256, kSide = 16;

__device__ inline int tile_y() { return threadIdx.x / kSide; }
__device__ inline int tile_x() { return threadIdx.x % kSide; }

template <int D>
struct Sizes {
  static constexpr int rows = D <= 64 ? 64 : 32;  // of a tile
  static constexpr int R = rows / kSide;          // of them, those of one thread
  static constexpr int C = D / 64;                // groups of four columns of one thread
  static constexpr int pitch = D + 4;  // floats; 4 more keep 16-byte reads free of conflicts
  static constexpr int score_pitch = rows + kSide;
  static constexpr int tile_floats = rows * pitch, score_floats = rows * score_pitch;
};

template <int D>
using Scores = float[Sizes<D>::R][Sizes<D>::R];
template <int D>
using Columns = float[Sizes<D>::R][Sizes<D>::C][4];

// What a query row sees, and who it is.
struct QueryRow {
  int position;
  int seen_begin, seen_end;  // rows of the key segment
  float lse, delta;

  __device__ bool sees(int key) const { return seen_begin <= key && key < seen_end; }
};

template <int D>
struct SharedRows {
  QueryRow row[Sizes<D>::rows];

  // Whether row i sees row `key` of the key segment, of which rows from `end` on are not there.
  __device__ bool sees(int i, int key, int end) const { return key < end && row[i].sees(key); }
};

__device__ inline int64_t offset_of(const DeviceMatrix& x, int64_t row, int head) {
  return row * x.row_stride + head * x.head_stride;
}

// Whether rows of heads are whole groups of four elements that a thread may load at once.
__device__ inline bool in_fours(const DeviceMatrix& x, int dim) {
  const int64_t together = x.row_stride | x.head_stride | dim;
  return together % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % sizeof(float4) == 0;
}

// Rows [row, row+count) of one head; everything else of the tile is 0. Whether all that this thread
// has loaded is finite.
template <int D>
__device__ bool load_tile(float* tile, const DeviceMatrix& x, int head, int row, int count,
                          int dim) {
  using S = Sizes<D>;
  const float* from = static_cast<const float*>(x.data) + offset_of(x, row, head);
  float zero = 0;  // times what is not finite it is NaN
  if (in_fours(x, dim)) {
    constexpr int kFours = S::rows * D / 4 / kThreads;
    float4 values[kFours];
#pragma unroll
    for (int n = 0; n < kFours; ++n) {
      const int e = threadIdx.x + n * kThreads, i = e / (D / 4), d = e % (D / 4) * 4;
      values[n] = i < count && d < dim
                      ? *reinterpret_cast<const float4*>(from + i * x.row_stride + d)
                      : float4{};
    }
#pragma unroll
    for (int n = 0; n < kFours; ++n) {
      const int e = threadIdx.x + n * kThreads, i = e / (D / 4), d = e % (D / 4) * 4;
      const float4 v = values[n];
      *reinterpret_cast<float4*>(tile + i * S::pitch + d) = v;
      zero = fmaf(v.x, 0.0f, fmaf(v.y, 0.0f, fmaf(v.z, 0.0f, fmaf(v.w, 0.0f, zero))));
    }
  } else {
    for (int e = threadIdx.x; e < S::rows * D; e += kThreads) {
      const int i = e / D, d = e % D;
      const float value = i < count && d < dim ? from[i * x.row_stride + d] : 0.0f;
      tile[i * S::pitch + d] = value;
      zero = fmaf(value, 0.0f, zero);
    }
  }
  return zero == 0;
}

// products[i][j] = a_i . b_j over the padded head dimension.
template <int D>
__device__ void multiply_rows(const float* a, const float* b, Scores<D>& products) {
  constexpr int R = Sizes<D>::R, pitch = Sizes<D>::pitch;
#pragma unroll
  for (int i = 0; i < R; ++i)
#pragma unroll
    for (int j = 0; j < R; ++j) products[i][j] = 0;
#pragma unroll 4
  for (int d = 0; d < D; d += 4) {
    float4 x[R], y[R];
#pragma unroll
    for (int i = 0; i < R; ++i) {
      x[i] = *reinterpret_cast<const float4*>(a + (tile_y() + kSide * i) * pitch + d);
      y[i] = *reinterpret_cast<const float4*>(b + (tile_x() + kSide * i) * pitch + d);
    }
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < R; ++j) {
        products[i][j] = fmaf(x[i].x, y[j].x, products[i][j]);
        products[i][j] = fmaf(x[i].y, y[j].y, products[i][j]);
        products[i][j] = fmaf(x[i].z, y[j].z, products[i][j]);
        products[i][j] = fmaf(x[i].w, y[j].w, products[i][j]);
      }
  }
}

template <int D>
__device__ void store_scores(const Scores<D>& scores, float* tile) {
  constexpr int R = Sizes<D>::R;
#pragma unroll
  for (int i = 0; i < R; ++i)
#pragma unroll
    for (int j = 0; j < R; ++j)
      tile[(tile_y() + kSide * i) * Sizes<D>::score_pitch + tile_x() + kSide * j] = scores[i][j];
}

enum class Read { straight, transposed };

// weight(i, j) = weights[i][j], or [j][i].
template <int D, Read read>
__device__ float weight_of(const float* weights, int i, int j) {
  return read == Read::straight ? weights[i * Sizes<D>::score_pitch + j]
                                : weights[j * Sizes<D>::score_pitch + i];
}

// sum[i] += sum over j of weight(i, j) * row j of `values`.
template <int D, Read read>
__device__ void add_weighted_rows(const float* weights, const float* values, Columns<D>& sum) {
  constexpr int R = Sizes<D>::R, C = Sizes<D>::C;
#pragma unroll 4
  for (int j = 0; j < Sizes<D>::rows; ++j) {
    float w[R];
#pragma unroll
    for (int i = 0; i < R; ++i) w[i] = weight_of<D, read>(weights, tile_y() + kSide * i, j);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const float4 v =
          *reinterpret_cast<const float4*>(values + j * Sizes<D>::pitch + 64 * c + 4 * tile_x());
#pragma unroll
      for (int i = 0; i < R; ++i) {
        sum[i][c][0] = fmaf(w[i], v.x, sum[i][c][0]);
        sum[i][c][1] = fmaf(w[i], v.y, sum[i][c][1]);
        sum[i][c][2] = fmaf(w[i], v.z, sum[i][c][2]);
        sum[i][c][3] = fmaf(w[i], v.w, sum[i][c][3]);
      }
    }
  }
}

// The same over the pairs of which sees(i, j) holds, in the same order.
template <int D, Read read, typename Sees>
__device__ void add_seen_rows(const float* weights, const float* values, Columns<D>& sum,
                              Sees sees) {
#pragma unroll 1
  for (int j = 0; j < Sizes<D>::rows; ++j) {
    const float* row = values + j * Sizes<D>::pitch + 4 * tile_x();
#pragma unroll
    for (int i = 0; i < Sizes<D>::R; ++i) {
      const int own = tile_y() + kSide * i;
      if (!sees(own, j)) continue;
      const float w = weight_of<D, read>(weights, own, j);
#pragma unroll
      for (int c = 0; c < Sizes<D>::C; ++c)
#pragma unroll
        for (int x = 0; x < 4; ++x) sum[i][c][x] = fmaf(w, row[64 * c + x], sum[i][c][x]);
    }
  }
}

// visit(i, d, &value) for the elements of `sum` that exist: row i of the item, dimension d.
template <int D, typename Visit>
__device__ void for_each_element(Columns<D>& sum, int rows, int dim, Visit visit) {
#pragma unroll
  for (int i = 0; i < Sizes<D>::R; ++i)
#pragma unroll
    for (int c = 0; c < Sizes<D>::C; ++c)
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const int row = tile_y() + kSide * i, d = 64 * c + 4 * tile_x() + x;
        if (row < rows && d < dim) visit(i, row, d, sum[i][c][x]);
      }
}

template <int D>
__device__ void add_to(const DeviceMatrix& x, int head, int first_row, int rows, int dim,
                       Columns<D>& sum) {
  float* to = static_cast<float*>(x.data);
  for_each_element<D>(sum, rows, dim, [&](int, int row, int d, float value) {
    to[offset_of(x, int64_t{first_row} + row, head) + d] += value;
  });
}

struct Scoring : ScoreModel<float, ScoreOptions> {
  __device__ Scoring(const AttentionShape& shape, const ScoreOptions& o, const WorkList& work,
                     const WorkItem& item, int resident_head)
      : ScoreModel<float, ScoreOptions>{o,
                                        {work.mask, item.len_q, item.len_k},
                                        shape.softmax_scale,
                                        0,
                                        item.own.seq,
                                        shape.first_head + resident_head} {
    if (o.alibi_slopes) alibi_slope = o.alibi_slopes[head];
  }
};

inline int padded_dim(const AttentionShape& shape) {
  const int dim = shape.head_dim_qk > shape.head_dim_v ? shape.head_dim_qk : shape.head_dim_v;
  return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}

// visit(index of an item, head) for this block of threads: one of each, or where a list has room
// for more items than it holds, every so-many-th. Heads of an item lie side by side.
template <typename Visit>
__device__ __forceinline__ void for_each_item(const WorkList& work, int heads, Visit visit) {
  const int64_t count = int64_t{*work.num_items} * heads;
  for (int64_t at = blockIdx.x; at < count; at += gridDim.x) {
    visit(static_cast<int>(at / heads), static_cast<int>(at % heads));
    if (at + gridDim.x < count) __syncthreads();  // shared memory is used up
  }
}

template <typename Kernel, typename Arguments>
cudaError_t launch_list(Kernel kernel, const Arguments& arguments, const WorkList& work, int heads,
                        size_t shared_bytes, cudaStream_t stream) {
  const int64_t blocks = int64_t{blocks_of_list(work, heads, processors_of_device())} * heads;
  return launch_with_shared(kernel, static_cast<unsigned>(blocks), kThreads,
                            static_cast<int>(shared_bytes), stream, arguments);
}

cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream);
cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream);

}  // namespace ringside::f32
