// Between global arrays and home buffers: every row finds its place in a map of rows.
#include "optimized/exchange/move.cuh"
#include "optimized/tables/accumulator_tiles.h"
#include "optimized/tables/row_owner.h"
#include "reference/attention/partial.h"

namespace ringside::move {
namespace {

// visit(row, head, d) for the packs of N that this block has of rows [0, rows). Blocks begin with
// the last rows, of which more is in the cache behind launches that go from the first to the last.
constexpr int kPacksOfThread = 4;
template <int N, typename Visit>
__device__ void for_each_pack(int rows, int heads, int dim, Visit visit) {
  const unsigned of_cell = static_cast<unsigned>(dim) / N, of_row = of_cell * heads;
  const int rows_of_block = max(1, kThreads * kPacksOfThread / static_cast<int>(of_row));
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * rows_of_block;
  const int here = min(rows_of_block, rows - first);
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
    if (!is_token(global)) return;
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

template <int N>
__device__ const Pack<float, N>* pack_at(const float* x) {
  return reinterpret_cast<const Pack<float, N>*>(x);
}

// Of a row of a head in fragments, columns d and on.
template <int N>
__device__ Pack<float, N> pack_of_fragments(const float* row, int d) {
  Pack<float, N> pack;
  if constexpr (N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const Pack<float, 2> two = *pack_at<2>(row + fragment_place(d + i));
      pack.of[i] = two.of[0], pack.of[i + 1] = two.of[1];
    }
  } else {
    pack.of[0] = row[fragment_place(d)];
  }
  return pack;
}

template <int N>
__device__ void add_to(Pack<float, N>& sum, const Pack<float, N>& x) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum.of[i] += x.of[i];
}

template <int N>
__device__ Pack<float, N> pack_of_sums(const HomeSums& from, int row, int head, int d, int heads,
                                       int columns) {
  if (from.layout == AccumulatorLayout::fragments)
    return pack_of_fragments<N>(from.cells + home_offset(row, head, 0, heads, columns, false), d);
  const bool in_tiles = from.layout == AccumulatorLayout::tiles;
  return *pack_at<N>(from.cells + home_offset(row, head, d, heads, columns, in_tiles));
}

template <int N, typename To>
__global__ void unshard_kernel(RowMap map, HomeSums from, int columns, Added added,
                               GlobalArray to) {
  To* x = static_cast<To*>(to.matrix.data);
  for_each_pack<N>(map.home_of_global.size, to.heads, to.dim, [&](int global, int head, int d) {
    const int row = map.home_of_global.rows[global];
    if (row == kWritten) return;
    To* place = x + offset_of(to.matrix, global, head) + d;
    Pack<float, N> y{};
    if (row != kNobody) {
      y = pack_of_sums<N>(from, row, head, d, to.heads, columns);
#pragma unroll
      for (float& x : y.of) x *= from.scale;
      Pack<float, N> sum{};
      for (int k = 0; k < added.count; ++k) {
        const Added::Term& term = added.terms[k];
        if (term.begins && k > 0) add_to(y, sum), sum = {};
        if (const int other = term.of_home[row]; other >= 0)
          add_to(sum,
                 *pack_at<N>(term.rows + home_offset(other, head, d, to.heads, columns, false)));
      }
      if (added.count > 0) add_to(y, sum);
    }
    move_pack<N>(y.of, place);
  });
}

__global__ void merge_sinks_kernel(RowMap map, Sinks sinks, Results home, int dim, bool in_tiles) {
  const int first = blockIdx.x * (kThreads / kLanes);
  const int rows = min(kThreads / kLanes, map.global_of_home.size - first);
  for_each_cell(rows, sinks.heads, [&](int row, int head) {
    if (!is_token(map.global_of_home.rows[first + row])) return;
    const int64_t cell = (int64_t{first} + row) * sinks.heads + head;
    const auto w = merge_weights(home.lse[cell], sinks.logits[head]);
    for (int d = threadIdx.x % kLanes; d < dim; d += kLanes)
      home.out[home_offset(int64_t{first} + row, head, d, sinks.heads, dim, in_tiles)] *= w.a;
    __syncwarp();
    if (threadIdx.x % kLanes == 0) home.lse[cell] = w.lse;
  });
}

// A sink's share of a row, which only a sink of -inf has none of.
__device__ double weight_of_sink(float sink, float lse) {
  return sink == -INFINITY ? 0.0f : larger(expf(sink - lse), kSmallestNormal<float>);
}

// One block a head; a thread's rows and the tree over threads are fixed, hence the order is. Rows
// that see nothing have no delta, whatever stands there.
template <typename Sees>
__global__ void sink_gradients_kernel(RowMap map, Sees sees, Sinks sinks, OfSoftmax softmax,
                                      float* dsink) {
  __shared__ double sums[kThreads];
  const int head = blockIdx.x;
  double sum = 0;
  for (int row = threadIdx.x; row < map.global_of_home.size; row += kThreads) {
    const int global = map.global_of_home.rows[row];
    if (!is_token(global) || !sees(global)) continue;
    sum -=
        weight_of_sink(sinks.logits[head], softmax.lse.of(row, head)) * softmax.delta.of(row, head);
  }
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) dsink[head] = static_cast<float>(sums[0]);
}

struct SeesByMask {
  UnseenRows unseen;
  __device__ bool operator()(int global) const { return !unseen.query(global); }
};
struct SeesAlways {
  __device__ bool operator()(int) const { return true; }
};

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

void unshard(const RowMap& map, const HomeSums& from, const GlobalArray& to, cudaStream_t stream,
             const Added& added) {
  const int rows = map.home_of_global.size;
  if (rows == 0) return;
  with_type(to.type, [&]<typename To>(To) {
    constexpr int kPack = sizeof(To) == 2 ? 8 : 4;
    const bool packs = takes_packs(to, kPack);
    const unsigned blocks = blocks_of_packs(rows, to.heads, to.dim, packs ? kPack : 1);
    (packs ? unshard_kernel<kPack, To> : unshard_kernel<1, To>)<<<blocks, kThreads, 0, stream>>>(
        map, from, to.columns_at_home(), added, to);
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

void merge_sinks(const RowMap& map, const Sinks& sinks, const Results& home, int dim,
                 AccumulatorLayout layout, cudaStream_t stream) {
  const int rows = map.global_of_home.size;
  const bool in_tiles = layout == AccumulatorLayout::tiles;
  if (rows == 0) return;
  merge_sinks_kernel<<<blocks_of_rows(rows), kThreads, 0, stream>>>(map, sinks, home, dim,
                                                                    in_tiles);
  RINGSIDE_CUDA(cudaGetLastError());
}

void sink_gradients(const RowMap& map, const Sinks& sinks, const OfSoftmax& softmax, float* dsink,
                    cudaStream_t stream) {
  sink_gradients_kernel<<<sinks.heads, kThreads, 0, stream>>>(map, SeesAlways(), sinks, softmax,
                                                              dsink);
  RINGSIDE_CUDA(cudaGetLastError());
}

void sink_gradients(const RowMap& map, const UnseenRows& unseen, const Sinks& sinks,
                    const OfSoftmax& softmax, float* dsink, cudaStream_t stream) {
  sink_gradients_kernel<<<sinks.heads, kThreads, 0, stream>>>(map, SeesByMask{unseen}, sinks,
                                                              softmax, dsink);
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside::move
