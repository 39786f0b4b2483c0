// Numbers of the softmax, one a row and head: delta and lse for the backward pass, lse for the
// caller.
#include <type_traits>

#include "optimized/exchange/move.cuh"
#include "optimized/tables/row_owner.h"

namespace ringside::move {
namespace {

// A cell's row is read by a team of threads, a pack each at a time; a thread asks for the packs of
// several cells before it uses one. Which thread sums what depends on the head dimension alone, so
// that strided arrays give the bits of dense ones.
constexpr int kCellsOfTeam = 4;

template <int Team>
__device__ float sum_of_team(float x) {
#pragma unroll
  for (int lanes = Team / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// Of a matrix of rows and heads, what a block of threads has: few heads of many rows, since an
// array of rows and heads is read along heads, and numbers lie along rows.
constexpr int kCellsOfBlock = 256, kMostHeadsOfBlock = 16;
struct BlockShape {
  int rows, heads;

  explicit BlockShape(int all_heads) {
    constexpr int kRun = 8;  // rows whose numbers are 32 bytes
    const int blocks = (all_heads + kMostHeadsOfBlock - 1) / kMostHeadsOfBlock;
    heads = (all_heads + blocks - 1) / blocks;
    rows = kCellsOfBlock / heads / kRun * kRun;
  }
};

struct Cell {
  int row = 0, global = -1, head = 0;
};

// The cells of a block, from the first row and head on.
struct Cells {
  int first_row, first_head, rows, heads;

  __device__ Cells(const RowMap& map, int all_heads, BlockShape shape)
      : first_row(blockIdx.x * shape.rows),
        first_head(blockIdx.y * shape.heads),
        rows(min(shape.rows, map.global_of_home.size - first_row)),
        heads(min(shape.heads, all_heads - first_head)) {}
  __device__ unsigned size() const { return rows * heads; }
  // Those that are not there, and padding, have no global row.
  __device__ Cell at(const RowMap& map, unsigned row, unsigned head) const {
    const int home = first_row + static_cast<int>(row);
    return {home, map.global_of_home.rows[home], first_head + static_cast<int>(head)};
  }
  __device__ Cell along_heads(const RowMap& map, unsigned index) const {
    return index < size() ? at(map, index / heads, index % heads) : Cell{};
  }
  __device__ Cell along_rows(const RowMap& map, unsigned index) const {
    return index < size() ? at(map, index % rows, index / rows) : Cell{};
  }
  // Of its sum, in shared memory; one further a head, as memory has as many banks as warps lanes.
  __device__ int place(const Cell& cell) const {
    return (cell.head - first_head) * (rows + 1) + cell.row - first_row;
  }
};

// Elements [d, d + N) of a row, which nobody reads again soon; zeros behind the last.
template <int N, bool kAligned, typename T>
__device__ Pack<T, N> load_pack(const T* row, int d, int dim) {
  Pack<T, N> pack;
  if constexpr (kAligned) {
    using Word = std::conditional_t<sizeof(pack) % 16 == 0, uint4, uint2>;
#pragma unroll
    for (size_t i = 0; i < sizeof(pack) / sizeof(Word); ++i)
      reinterpret_cast<Word*>(&pack)[i] = __ldcs(reinterpret_cast<const Word*>(row + d) + i);
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n)
      if (d + n < dim)
        pack.of[n] = row[d + n];
      else
        assign(pack.of[n], 0);
  }
  return pack;
}

// Where a cell has no global row, row 0 is read, and the sum is nobody's.
template <int Team, int N, bool kAligned, typename Dout, typename Out>
__device__ void multiply_cells(const GlobalArray& dout, const GlobalArray& out,
                               const Cell (&cells)[kCellsOfTeam], float (&sums)[kCellsOfTeam]) {
  const Dout* x = static_cast<const Dout*>(dout.matrix.data);
  const Out* y = static_cast<const Out*>(out.matrix.data);
  for (int d = threadIdx.x % Team * N; d < out.dim; d += Team * N) {
    Pack<Dout, N> of_dout[kCellsOfTeam];
    Pack<Out, N> of_out[kCellsOfTeam];
#pragma unroll
    for (int i = 0; i < kCellsOfTeam; ++i) {
      const int row = max(cells[i].global, 0), head = cells[i].head;
      of_dout[i] = load_pack<N, kAligned>(x + offset_of(dout.matrix, row, head), d, out.dim);
      of_out[i] = load_pack<N, kAligned>(y + offset_of(out.matrix, row, head), d, out.dim);
    }
#pragma unroll
    for (int i = 0; i < kCellsOfTeam; ++i)
#pragma unroll
      for (int n = 0; n < N; ++n)
        sums[i] = fmaf(to_float(of_dout[i].of[n]), to_float(of_out[i].of[n]), sums[i]);
  }
}

template <typename T>
__device__ void clear_rows(const GlobalArray& x, int first, unsigned rows) {
  for (unsigned todo = rows; todo != 0; todo &= todo - 1) {
    const int row = first + __ffs(static_cast<int>(todo)) - 1;
    for (int head = threadIdx.x / kLanes; head < x.heads; head += blockDim.x / kLanes) {
      T* to = static_cast<T*>(x.matrix.data) + offset_of(x.matrix, row, head);
      for (int d = threadIdx.x % kLanes; d < x.dim; d += kLanes) assign(to[d], 0);
    }
  }
}
// Zeros of all types of 16 bits are the same.
__device__ void clear_rows_of_any_type(const GlobalArray& x, int first, unsigned rows) {
  if (x.matrix.data == nullptr) return;
  x.type == ElementType::float32 ? clear_rows<float>(x, first, rows)
                                 : clear_rows<__half>(x, first, rows);
}

// The block's rows, one a lane, of which `is_unseen` holds; all threads get the answer.
template <typename IsUnseen>
__device__ unsigned unseen_of(int first, int rows, IsUnseen is_unseen) {
  __shared__ unsigned found;
  if (threadIdx.x < kLanes) {
    const int row = first + static_cast<int>(threadIdx.x);
    const unsigned unseen = __ballot_sync(~0u, row < rows && is_unseen(row));
    if (threadIdx.x == 0) found = unseen;
  }
  __syncthreads();
  return found;
}

constexpr int kThreadsOfSums = 512, kBlocksOfProcessor = 2;
static_assert(kCellsOfBlock <= kThreadsOfSums);

// The blocks of threads behind those that sum: each kind of Cleared has its own, in this order.
constexpr int64_t kZerosOfBlock = kThreadsOfSums * 64;  // bytes
RINGSIDE_HD inline int64_t blocks_of(const Cleared::Zeros& x) {
  return (x.bytes + kZerosOfBlock - 1) / kZerosOfBlock;
}
RINGSIDE_HD inline int64_t blocks_of_queries(const Cleared& x) {
  return x.of_queries.matrix.data == nullptr ? 0 : (x.rows_q + kLanes - 1) / kLanes;
}
RINGSIDE_HD inline int64_t blocks_of_keys(const Cleared& x) {
  return x.of_keys[0].matrix.data == nullptr ? 0 : (x.rows_k + kLanes - 1) / kLanes;
}

__device__ void clear_zeros(const Cleared::Zeros& x, int64_t block) {
  constexpr int kWord = sizeof(uint4);
  auto* const data = static_cast<std::byte*>(x.data);
  const int64_t begin = block * kZerosOfBlock, end = min(begin + kZerosOfBlock, x.bytes);
  const int64_t whole = begin + (end - begin) / kWord * kWord;
  for (int64_t at = begin + threadIdx.x * kWord; at < whole; at += blockDim.x * kWord)
    *reinterpret_cast<uint4*>(data + at) = {};
  if (threadIdx.x < (end - whole) / sizeof(uint32_t))
    reinterpret_cast<uint32_t*>(data + whole)[threadIdx.x] = 0;
}

__device__ void clear(const Cleared& x, int64_t block) {
  for (const Cleared::Zeros& zeros : x.zeros) {
    if (block >= 0 && block < blocks_of(zeros)) clear_zeros(zeros, block);
    block -= blocks_of(zeros);
  }
  if (block < 0) return;
  if (block < blocks_of_queries(x)) {
    const int first = static_cast<int>(block) * kLanes;
    const auto is_unseen = [&](int row) { return x.unseen.query(row); };
    const unsigned hidden = unseen_of(first, x.rows_q, is_unseen);
    return clear_rows_of_any_type(x.of_queries, first, hidden);
  }
  block -= blocks_of_queries(x);
  if (block >= blocks_of_keys(x)) return;
  const int first = static_cast<int>(block) * kLanes;
  const unsigned hidden = unseen_of(first, x.rows_k, [&](int row) { return x.unseen.key(row); });
  for (const GlobalArray& array : x.of_keys) clear_rows_of_any_type(array, first, hidden);
}

template <int Team, int N, bool kAligned, typename Dout, typename Out>
__global__ void __launch_bounds__(kThreadsOfSums, kBlocksOfProcessor)
    shard_softmax_kernel(RowMap map, GlobalArray dout, GlobalArray out, GlobalArray lse,
                         OfSoftmax to, BlockShape shape, unsigned blocks_of_sums,
                         const __grid_constant__ Cleared cleared) {
  if (blockIdx.x >= blocks_of_sums) {
    const int64_t behind = blockIdx.x - blocks_of_sums;
    return clear(cleared, behind * gridDim.y + blockIdx.y);
  }
  constexpr int kTeams = kThreadsOfSums / Team, kCellsOfStep = kTeams * kCellsOfTeam;
  __shared__ float deltas[kCellsOfBlock + kMostHeadsOfBlock];
  const Cells all(map, out.heads, shape);
  const unsigned team = threadIdx.x / Team;
  const Cell own = all.along_rows(map, threadIdx.x);
  float of_own = 0;
  if (is_token(own.global))
    of_own =
        static_cast<const float*>(lse.matrix.data)[offset_of(lse.matrix, own.global, own.head)];
  for (unsigned begin = 0; begin < all.size(); begin += kCellsOfStep) {
    Cell cells[kCellsOfTeam];
    float sums[kCellsOfTeam] = {};
#pragma unroll
    for (int i = 0; i < kCellsOfTeam; ++i)
      cells[i] = all.along_heads(map, begin + i * kTeams + team);
    multiply_cells<Team, N, kAligned, Dout, Out>(dout, out, cells, sums);
#pragma unroll
    for (int i = 0; i < kCellsOfTeam; ++i) {
      const float sum = sum_of_team<Team>(sums[i]);
      if (threadIdx.x % Team == 0 && is_token(cells[i].global)) deltas[all.place(cells[i])] = sum;
    }
  }
  __syncthreads();
  if (!is_token(own.global)) return;
  to.delta.of(own.row, own.head) = deltas[all.place(own)], to.lse.of(own.row, own.head) = of_own;
}

template <int Team, typename Dout, typename Out>
void launch_shard_softmax(const RowMap& map, const GlobalArray& dout, const GlobalArray& out,
                          const GlobalArray& lse, const OfSoftmax& to, const Cleared& cleared,
                          cudaStream_t stream) {
  constexpr int kPack = sizeof(Dout) == 2 ? 8 : 4;
  const bool aligned = takes_packs(dout, kPack) && takes_packs(out, kPack);
  const BlockShape shape(out.heads);
  const auto blocks = [](int64_t all, int64_t of_block) {
    return static_cast<unsigned>((all + of_block - 1) / of_block);
  };
  const bool no_rows = map.global_of_home.size == 0 || map.home_of_global.size == 0;
  const unsigned of_sums = no_rows ? 0 : blocks(map.global_of_home.size, shape.rows);
  int64_t of_clears = blocks_of_queries(cleared) + blocks_of_keys(cleared);
  for (const Cleared::Zeros& zeros : cleared.zeros) of_clears += blocks_of(zeros);
  const unsigned in_y = blocks(out.heads, shape.heads);
  const dim3 grid(of_sums + blocks(of_clears, in_y), in_y);
  if (grid.x == 0) return;
  (aligned
       ? shard_softmax_kernel<Team, kPack, true, Dout, Out>
       : shard_softmax_kernel<Team, kPack, false, Dout, Out>)<<<grid, kThreadsOfSums, 0, stream>>>(
      map, dout, out, lse, to, shape, of_sums, cleared);
}

// As many rows as a warp has lanes; its warps take turns at the heads, so that neighbours write
// neighbours.
__global__ void unshard_lse_kernel(RowMap map, const float* from, GlobalArray lse) {
  const int global = blockIdx.x * kLanes + threadIdx.x % kLanes;
  if (global >= map.home_of_global.size) return;
  const int64_t row = map.home_of_global.rows[global];
  float* to = static_cast<float*>(lse.matrix.data);
  for (int head = threadIdx.x / kLanes; head < lse.heads; head += kThreads / kLanes)
    to[offset_of(lse.matrix, global, head)] =
        row != kNobody ? from[row * lse.heads + head] : -INFINITY;
}

template <typename T>
__global__ void clear_results_kernel(UnseenRows unseen, GlobalArray out, GlobalArray lse,
                                     const float* sinks, int rows) {
  const int first = blockIdx.x * kLanes;
  const unsigned hidden = unseen_of(first, rows, [&](int row) { return unseen.query(row); });
  clear_rows<T>(out, first, hidden);
  const int lane = threadIdx.x % kLanes;
  if ((hidden >> lane & 1) == 0) return;
  const bool has_sink = sinks != nullptr && unseen.is_query(first + lane);
  float* to = static_cast<float*>(lse.matrix.data);
  for (int head = threadIdx.x / kLanes; head < lse.heads; head += kThreads / kLanes)
    to[offset_of(lse.matrix, first + lane, head)] = has_sink ? sinks[head] : -INFINITY;
}

unsigned blocks_of_lanes(int rows) { return static_cast<unsigned>((rows + kLanes - 1) / kLanes); }

}  // namespace

void shard_softmax(const RowMap& map, const GlobalArray& dout, const GlobalArray& out,
                   const GlobalArray& lse, const OfSoftmax& to, const Cleared& cleared,
                   cudaStream_t stream) {
  with_type(dout.type, [&]<typename Dout>(Dout) {
    with_type(out.type, [&]<typename Out>(Out) {
      (out.dim * sizeof(Dout) <= 128
           ? launch_shard_softmax<8, Dout, Out>
           : launch_shard_softmax<16, Dout, Out>)(map, dout, out, lse, to, cleared, stream);
    });
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

void unshard_lse(const RowMap& map, const float* from, const GlobalArray& lse,
                 cudaStream_t stream) {
  const int rows = map.home_of_global.size;
  if (rows == 0) return;
  unshard_lse_kernel<<<blocks_of_lanes(rows), kThreads, 0, stream>>>(map, from, lse);
  RINGSIDE_CUDA(cudaGetLastError());
}

void clear_unseen_results(const UnseenRows& unseen, const GlobalArray& out, const GlobalArray& lse,
                          const float* sinks, int rows, cudaStream_t stream) {
  if (rows == 0) return;
  with_type(out.type, [&]<typename T>(T) {
    clear_results_kernel<T>
        <<<blocks_of_lanes(rows), kThreads, 0, stream>>>(unseen, out, lse, sinks, rows);
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside::move
