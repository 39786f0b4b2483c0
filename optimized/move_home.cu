// Between global arrays and home buffers: every row finds its place in a map of rows.
#include <algorithm>

#include "optimized/move.cuh"
#include "optimized/tiled_rows.h"
#include "reference/partial.h"

namespace ringside::move {
namespace {

// N neighbouring elements of a row of a head, moved as one.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T of[N];
};

template <int N, typename From, typename To>
__device__ void move_pack(const From* from, To* to) {
  const auto x = *reinterpret_cast<const Pack<From, N>*>(from);
  Pack<To, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) assign(y.of[i], to_float(x.of[i]));
  *reinterpret_cast<Pack<To, N>*>(to) = y;
}

// visit(row, head, d) for the packs of N that this block has of rows [0, rows).
constexpr int kPacksOfThread = 4;
template <int N, typename Visit>
__device__ void for_each_pack(int rows, int heads, int dim, Visit visit) {
  const unsigned of_cell = static_cast<unsigned>(dim) / N, of_row = of_cell * heads;
  const int rows_of_block = max(1, kThreads * kPacksOfThread / static_cast<int>(of_row));
  const int first = blockIdx.x * rows_of_block, here = min(rows_of_block, rows - first);
#pragma unroll 4
  for (unsigned e = threadIdx.x; e < here * of_row; e += kThreads)
    visit(first + static_cast<int>(e / of_row), static_cast<int>(e % of_row / of_cell),
          static_cast<int>(e % of_cell) * N);
}
unsigned blocks_of_packs(int rows, int heads, int dim, int n) {
  const int rows_of_block = std::max(1, kThreads * kPacksOfThread / (heads * (dim / n)));
  return static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block);
}

template <int N, typename From, typename To>
__global__ void shard_kernel(RowMap map, GlobalArray from, int columns, To* to) {
  const From* x = static_cast<const From*>(from.matrix.data);
  for_each_pack<N>(map.global_of_home.size, from.heads, columns, [&](int row, int head, int d) {
    const int global = map.global_of_home.rows[row];
    if (global < 0) return;
    To* place = to + (int64_t{row} * from.heads + head) * columns + d;
    if (d < from.dim)
      move_pack<N>(x + offset_of(from.matrix, global, head) + d, place);
    else
      for (int i = 0; i < N; ++i) assign(place[i], 0);
  });
}

// Of home buffers, float32.
__device__ int64_t home_offset(int64_t row, int head, int d, int heads, int columns,
                               bool in_tiles) {
  return in_tiles ? tiled_offset(row, head, d, heads, columns) : (row * heads + head) * columns + d;
}

template <int N, typename To>
__global__ void unshard_kernel(RowMap map, const float* from, int columns, bool in_tiles,
                               GlobalArray to, float of_nobody) {
  To* x = static_cast<To*>(to.matrix.data);
  for_each_pack<N>(map.home_of_global.size, to.heads, to.dim, [&](int global, int head, int d) {
    const int row = map.home_of_global.rows[global];
    To* place = x + offset_of(to.matrix, global, head) + d;
    if (row != kNobody) {
      move_pack<N>(from + home_offset(row, head, d, to.heads, columns, in_tiles), place);
    } else {
      Pack<float, N> y;
      for (int i = 0; i < N; ++i) y.of[i] = of_nobody;
      move_pack<N>(y.of, place);
    }
  });
}

// Whether packs of n elements are aligned in a global array.
bool takes_packs(const GlobalArray& x, int n) {
  const int64_t bytes = std::min(16, n * bytes_of(x.type)), element = bytes_of(x.type);
  return x.dim % n == 0 && x.columns_at_home() % n == 0 &&
         reinterpret_cast<uintptr_t>(x.matrix.data) % bytes == 0 &&
         x.matrix.row_stride * element % bytes == 0 && x.matrix.head_stride * element % bytes == 0;
}

template <typename Dout, typename Out>
__global__ void delta_kernel(RowMap map, GlobalArray dout, GlobalArray out, float* to) {
  const int first = blockIdx.x * (kThreads / kLanes);
  const int rows = min(kThreads / kLanes, map.global_of_home.size - first);
  for_each_cell(rows, out.heads, [&](int row, int head) {
    const int global = map.global_of_home.rows[first + row];
    if (global < 0) return;
    const Dout* x =
        static_cast<const Dout*>(dout.matrix.data) + offset_of(dout.matrix, global, head);
    const Out* y = static_cast<const Out*>(out.matrix.data) + offset_of(out.matrix, global, head);
    float sum = 0;
    for (int d = threadIdx.x % kLanes; d < out.dim; d += kLanes)
      sum = fmaf(to_float(x[d]), to_float(y[d]), sum);
    sum = sum_of_warp(sum);
    if (threadIdx.x % kLanes == 0) to[(int64_t{first} + row) * out.heads + head] = sum;
  });
}

__global__ void merge_sinks_kernel(RowMap map, Sinks sinks, Results home, int dim, bool in_tiles) {
  const int first = blockIdx.x * (kThreads / kLanes);
  const int rows = min(kThreads / kLanes, map.global_of_home.size - first);
  for_each_cell(rows, sinks.heads, [&](int row, int head) {
    if (map.global_of_home.rows[first + row] < 0) return;
    const int64_t cell = (int64_t{first} + row) * sinks.heads + head;
    const auto w = merge_weights(home.lse[cell], sinks.logits[head]);
    for (int d = threadIdx.x % kLanes; d < dim; d += kLanes)
      home.out[home_offset(int64_t{first} + row, head, d, sinks.heads, dim, in_tiles)] *= w.a;
    __syncwarp();
    if (threadIdx.x % kLanes == 0) home.lse[cell] = w.lse;
  });
}

// One block a head; a thread's rows and the tree over threads are fixed, hence the order is.
__global__ void sink_gradients_kernel(RowMap map, Sinks sinks, const float* lse, const float* delta,
                                      float* dsink) {
  __shared__ double sums[kThreads];
  const int head = blockIdx.x;
  double sum = 0;
  for (int row = threadIdx.x; row < map.global_of_home.size; row += kThreads) {
    if (map.global_of_home.rows[row] < 0) continue;
    const int64_t cell = int64_t{row} * sinks.heads + head;
    sum -= static_cast<double>(expf(sinks.logits[head] - lse[cell])) * delta[cell];
  }
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) dsink[head] = static_cast<float>(sums[0]);
}

// A warp looks at as many rows as it has lanes, then clears those it must together.
template <typename T>
__global__ void clear_unseen_kernel(UnseenRows unseen, RowsOf which, GlobalArray x, int rows) {
  const int first = (blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes) * kLanes;
  const int lane = threadIdx.x % kLanes, own = first + lane;
  bool clear = false;
  if (own < rows) clear = which == RowsOf::queries ? unseen.query(own) : unseen.key(own);
  for (unsigned todo = __ballot_sync(~0u, clear); todo != 0; todo &= todo - 1) {
    const int row = first + __ffs(static_cast<int>(todo)) - 1;
    for (int head = 0; head < x.heads; ++head) {
      T* to = static_cast<T*>(x.matrix.data) + offset_of(x.matrix, row, head);
      for (int d = lane; d < x.dim; d += kLanes) assign(to[d], 0);
    }
  }
}

}  // namespace

void shard(const RowMap& map, const GlobalArray& from, void* to, ElementType to_type,
           cudaStream_t stream) {
  const int rows = map.global_of_home.size;
  if (rows == 0) return;
  with_type(from.type, [&]<typename From>(From) {
    const auto run = [&]<typename To>(To*) {
      constexpr int kPack = sizeof(From) == 2 ? 8 : 4;
      const bool packs = takes_packs(from, kPack);
      const int columns = from.columns_at_home();
      const unsigned blocks = blocks_of_packs(rows, from.heads, columns, packs ? kPack : 1);
      (packs ? shard_kernel<kPack, From, To>
             : shard_kernel<1, From, To>)<<<blocks, kThreads, 0, stream>>>(map, from, columns,
                                                                           static_cast<To*>(to));
    };
    if (to_type == ElementType::float32)
      run(static_cast<float*>(nullptr));
    else  // the family takes what the caller has
      run(static_cast<From*>(nullptr));
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

void unshard(const RowMap& map, const float* from, const GlobalArray& to, float of_nobody,
             cudaStream_t stream, bool in_tiles) {
  const int rows = map.home_of_global.size;
  if (rows == 0) return;
  with_type(to.type, [&]<typename To>(To) {
    constexpr int kPack = sizeof(To) == 2 ? 8 : 4;
    const bool packs = takes_packs(to, kPack);
    const unsigned blocks = blocks_of_packs(rows, to.heads, to.dim, packs ? kPack : 1);
    (packs ? unshard_kernel<kPack, To> : unshard_kernel<1, To>)<<<blocks, kThreads, 0, stream>>>(
        map, from, to.columns_at_home(), in_tiles, to, of_nobody);
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

void delta(const RowMap& map, const GlobalArray& dout, const GlobalArray& out, float* to,
           cudaStream_t stream) {
  const int rows = map.global_of_home.size;
  if (rows == 0) return;
  with_type(dout.type, [&]<typename Dout>(Dout) {
    with_type(out.type, [&]<typename Out>(Out) {
      delta_kernel<Dout, Out><<<blocks_of_rows(rows), kThreads, 0, stream>>>(map, dout, out, to);
    });
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

void merge_sinks(const RowMap& map, const Sinks& sinks, const Results& home, int dim, bool in_tiles,
                 cudaStream_t stream) {
  const int rows = map.global_of_home.size;
  if (rows == 0) return;
  merge_sinks_kernel<<<blocks_of_rows(rows), kThreads, 0, stream>>>(map, sinks, home, dim,
                                                                    in_tiles);
  RINGSIDE_CUDA(cudaGetLastError());
}

void sink_gradients(const RowMap& map, const Sinks& sinks, const float* lse, const float* delta,
                    float* dsink, cudaStream_t stream) {
  sink_gradients_kernel<<<sinks.heads, kThreads, 0, stream>>>(map, sinks, lse, delta, dsink);
  RINGSIDE_CUDA(cudaGetLastError());
}

void clear_unseen(const UnseenRows& unseen, RowsOf which, const GlobalArray& x, int rows,
                  cudaStream_t stream) {
  if (rows == 0) return;
  const unsigned blocks = static_cast<unsigned>((rows + kThreads - 1) / kThreads);
  with_type(x.type, [&]<typename T>(T) {
    clear_unseen_kernel<T><<<blocks, kThreads, 0, stream>>>(unseen, which, x, rows);
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside::move
