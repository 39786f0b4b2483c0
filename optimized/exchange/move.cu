// Between resident buffers: copies, sums and merges over tables of cells; and fills.
#include "optimized/exchange/move.cuh"
#include "optimized/tables/ordered_float.h"
#include "reference/attention/partial.h"

namespace ringside::move {

int bytes_of(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

namespace {

constexpr int kAtOnce = 4;  // loads that a thread has under way

// The cells of a row of a block; false where a map has no such row.
struct Row {
  int64_t from = 0, to = 0;
};
__device__ inline bool find_row(const CellBlock& b, const int32_t* map, int i, Row& row) {
  const int from = CellBlock::row(b.from_map, map, i), to = CellBlock::row(b.to_map, map, i);
  row = {b.from + int64_t{from} * b.from_pitch, b.to + int64_t{to} * b.to_pitch};
  return from >= 0 && to >= 0;
}

// to = combine(from, to) for every unit of a block; a cell is `size` units long. Thread blocks with
// the same x share a block of the table. All loads of a turn are under way before the first sum.
template <typename Unit, typename Combine>
__device__ void for_each_unit(const CellBlock& b, const int32_t* map, const Unit* from, Unit* to,
                              int size, Combine combine) {
  const unsigned of_row = static_cast<unsigned>(b.heads) * size, count = of_row * b.rows;
  const unsigned begin = blockIdx.y * kThreads * kAtOnce + threadIdx.x;
  for (unsigned first = begin; first < count; first += gridDim.y * kThreads * kAtOnce) {
    Unit* places[kAtOnce];
    Unit values[kAtOnce], before[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const unsigned e = first + i * kThreads;
      Row row;
      places[i] = nullptr;
      if (e >= count || !find_row(b, map, static_cast<int>(e / of_row), row)) continue;
      const int64_t unit = e % of_row;
      places[i] = &to[row.to * size + unit];
      values[i] = from[row.from * size + unit];
      if constexpr (Combine::kReads) before[i] = *places[i];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (places[i] != nullptr) *places[i] = combine(values[i], before[i]);
  }
}

struct Take {
  static constexpr bool kReads = false;  // what is there
  template <typename Unit>
  __device__ Unit operator()(const Unit& x, const Unit&) const {
    return x;
  }
};

struct Add {
  static constexpr bool kReads = true;
  __device__ float operator()(float x, float y) const { return y + x; }
  __device__ float4 operator()(const float4& x, const float4& y) const {
    return {y.x + x.x, y.y + x.y, y.z + x.z, y.w + x.w};
  }
};

// A unit is as wide as size and alignment allow.
template <typename Unit, typename Combine>
__global__ void combine_kernel(const CellBlock* blocks, const int32_t* map, const Unit* from,
                               Unit* to, int size) {
  const CellBlock block = blocks[blockIdx.x];  // read once: `to` could lie anywhere
  for_each_unit(block, map, from, to, size, Combine{});
}

// Tables of few blocks, which many thread blocks share: a sum waits for memory, whose rate takes
// some 2,000 thread blocks of 256 threads to use up.
dim3 shared_by_many(const Blocks& blocks) {
  constexpr int kEnough = 2048, kMost = 16;
  return {static_cast<unsigned>(blocks.table.size),
          static_cast<unsigned>(std::clamp(kEnough / blocks.table.size, 1, kMost))};
}

template <typename Combine, typename Unit>
void launch(const Blocks& blocks, const Unit* from, Unit* to, int size, cudaStream_t stream) {
  combine_kernel<Unit, Combine><<<shared_by_many(blocks), kThreads, 0, stream>>>(
      blocks.table.rows, blocks.map, from, to, size);
}

__device__ inline float weighted(float a, float x, float b, float y) { return a * x + b * y; }
__device__ inline float4 weighted(float a, const float4& x, float b, const float4& y) {
  return {a * x.x + b * y.x, a * x.y + b * y.y, a * x.z + b * y.z, a * x.w + b * y.w};
}

// A cell a warp; `size` units each.
template <typename Unit>
__global__ void merge_kernel(const CellBlock* blocks, const int32_t* map, Results from, Results to,
                             int size) {
  constexpr int kWarps = kThreads / kLanes;
  const CellBlock b = blocks[blockIdx.x];
  const int lane = threadIdx.x % kLanes, first = blockIdx.y * kWarps + threadIdx.x / kLanes;
  for (int cell = first; cell < b.rows * b.heads; cell += gridDim.y * kWarps) {
    Row row;
    if (!find_row(b, map, cell / b.heads, row)) continue;
    const int64_t source = row.from + cell % b.heads, target = row.to + cell % b.heads;
    const auto* x = reinterpret_cast<const Unit*>(from.out) + source * size;
    auto* sum = reinterpret_cast<Unit*>(to.out) + target * size;
    const auto w = merge_weights(to.lse[target], from.lse[source]);
    for (int d = lane; d < size; d += kLanes) sum[d] = weighted(w.a, sum[d], w.b, x[d]);
    __syncwarp();  // all lanes have read the old lse
    if (lane == 0) to.lse[target] = w.lse;
  }
}

__global__ void fill_kernel(float* x, int64_t size, float value) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += int64_t{gridDim.x} * kThreads)
    x[i] = value;
}

__global__ void start_max_logit_kernel(int32_t* keys, int heads) {
  for (int head = threadIdx.x; head < heads; head += kThreads) keys[head] = ordered_key(-INFINITY);
}

__global__ void finish_max_logit_kernel(float* max_logit, int heads) {
  for (int head = threadIdx.x; head < heads; head += kThreads)
    max_logit[head] = from_ordered_key(__float_as_int(max_logit[head]));
}

template <typename Unit>
void copy_units(const Blocks& blocks, const void* from, void* to, int bytes_of_cell,
                cudaStream_t stream) {
  launch<Take>(blocks, static_cast<const Unit*>(from), static_cast<Unit*>(to),
               bytes_of_cell / static_cast<int>(sizeof(Unit)), stream);
}

}  // namespace

void copy(const Blocks& blocks, const void* from, void* to, int bytes_of_cell,
          cudaStream_t stream) {
  if (blocks.table.size == 0) return;
  if (bytes_of_cell % 16 == 0)
    copy_units<uint4>(blocks, from, to, bytes_of_cell, stream);
  else if (bytes_of_cell % 4 == 0)
    copy_units<uint32_t>(blocks, from, to, bytes_of_cell, stream);
  else
    copy_units<uint16_t>(blocks, from, to, bytes_of_cell, stream);
  RINGSIDE_CUDA(cudaGetLastError());
}

void add(const Blocks& blocks, const float* from, float* to, int dim, cudaStream_t stream) {
  if (blocks.table.size == 0) return;
  if (dim % 4 == 0)
    launch<Add>(blocks, reinterpret_cast<const float4*>(from), reinterpret_cast<float4*>(to),
                dim / 4, stream);
  else
    launch<Add>(blocks, from, to, dim, stream);
  RINGSIDE_CUDA(cudaGetLastError());
}

void merge(const Blocks& blocks, const Results& from, const Results& to, int dim,
           cudaStream_t stream) {
  if (blocks.table.size == 0) return;
  const auto launch_of = [&]<typename Unit>(Unit) {
    merge_kernel<Unit><<<shared_by_many(blocks), kThreads, 0, stream>>>(
        blocks.table.rows, blocks.map, from, to, dim / static_cast<int>(sizeof(Unit) / 4));
  };
  if (dim % 4 == 0)
    launch_of(float4{});
  else
    launch_of(0.0f);
  RINGSIDE_CUDA(cudaGetLastError());
}

void fill(float* x, int64_t size, float value, cudaStream_t stream) {
  if (size == 0) return;
  const int64_t blocks = (size + kThreads - 1) / kThreads;
  fill_kernel<<<static_cast<unsigned>(blocks < 2048 ? blocks : 2048), kThreads, 0, stream>>>(
      x, size, value);
  RINGSIDE_CUDA(cudaGetLastError());
}

void start_max_logit(float* max_logit, int heads, cudaStream_t stream) {
  start_max_logit_kernel<<<1, kThreads, 0, stream>>>(reinterpret_cast<int32_t*>(max_logit), heads);
  RINGSIDE_CUDA(cudaGetLastError());
}

void finish_max_logit(float* max_logit, int heads, cudaStream_t stream) {
  finish_max_logit_kernel<<<1, kThreads, 0, stream>>>(max_logit, heads);
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside::move
