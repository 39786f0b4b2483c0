#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "optimized/cuda_error.h"
#include "optimized/move.h"
#include "optimized/ordered_float.h"
#include "reference/partial.h"

namespace ringside::move {
namespace {

constexpr int kThreads = 256, kLanes = 32;

__device__ int64_t offset_of(const DeviceMatrix& x, int64_t row, int head) {
  return row * x.row_stride + head * x.head_stride;
}

__device__ float to_float(float x) { return x; }
__device__ float to_float(__half x) { return __half2float(x); }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void assign(float& to, float x) { to = x; }
__device__ void assign(__half& to, float x) { to = __float2half_rn(x); }
__device__ void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

// Calls run(T{}) for the type's element.
template <typename Run>
void with_type(ElementType type, Run run) {
  switch (type) {
    case ElementType::float32:
      return run(float{});
    case ElementType::float16:
      return run(__half{});
    case ElementType::bfloat16:
      return run(__nv_bfloat16{});
  }
}

// visit(row, head, d) for what one thread has of `rows` rows.
template <typename Visit>
__device__ void for_each_element(int rows, int heads, int dim, Visit visit) {
  const unsigned of_row = static_cast<unsigned>(heads) * dim, count = of_row * rows;
  for (unsigned e = threadIdx.x; e < count; e += kThreads)
    visit(static_cast<int>(e / of_row), static_cast<int>(e % of_row / dim),
          static_cast<int>(e % dim));
}

template <typename From, typename To>
__global__ void shard_kernel(const RowBlock* blocks, GlobalArray from, int columns, To* to) {
  const RowBlock b = blocks[blockIdx.x];
  const From* x = static_cast<const From*>(from.matrix.data);
  for_each_element(b.rows, from.heads, columns, [&](int row, int head, int d) {
    const int64_t global = b.global_row + int64_t{row} * b.global_step;
    const int64_t cell = (int64_t{b.home_row} + row) * from.heads + head;
    assign(to[cell * columns + d],
           d < from.dim ? to_float(x[offset_of(from.matrix, global, head) + d]) : 0.0f);
  });
}

template <typename To>
__global__ void unshard_kernel(const RowBlock* blocks, const float* from, int columns,
                               GlobalArray to) {
  const RowBlock b = blocks[blockIdx.x];
  To* x = static_cast<To*>(to.matrix.data);
  for_each_element(b.rows, to.heads, to.dim, [&](int row, int head, int d) {
    const int64_t global = b.global_row + int64_t{row} * b.global_step;
    const int64_t cell = (int64_t{b.home_row} + row) * to.heads + head;
    assign(x[offset_of(to.matrix, global, head) + d], from[cell * columns + d]);
  });
}

__device__ float sum_of_warp(float x) {
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
  return x;
}

// visit(row, head) for the cells of one warp.
template <typename Visit>
__device__ void for_each_cell(int rows, int heads, Visit visit) {
  for (int cell = threadIdx.x / kLanes; cell < rows * heads; cell += kThreads / kLanes)
    visit(cell / heads, cell % heads);
}

template <typename Dout, typename Out>
__global__ void delta_kernel(const RowBlock* blocks, GlobalArray dout, GlobalArray out, float* to) {
  const RowBlock b = blocks[blockIdx.x];
  for_each_cell(b.rows, out.heads, [&](int row, int head) {
    const int64_t global = b.global_row + int64_t{row} * b.global_step;
    const Dout* x =
        static_cast<const Dout*>(dout.matrix.data) + offset_of(dout.matrix, global, head);
    const Out* y = static_cast<const Out*>(out.matrix.data) + offset_of(out.matrix, global, head);
    float sum = 0;
    for (int d = threadIdx.x % kLanes; d < out.dim; d += kLanes)
      sum = fmaf(to_float(x[d]), to_float(y[d]), sum);
    sum = sum_of_warp(sum);
    if (threadIdx.x % kLanes == 0) to[(int64_t{b.home_row} + row) * out.heads + head] = sum;
  });
}

// Cells are `size` units long; a unit is as wide as size and alignment allow.
template <typename Unit>
__global__ void copy_kernel(const CellBlock* blocks, const Unit* from, Unit* to, int size) {
  const CellBlock b = blocks[blockIdx.x];
  const unsigned of_row = static_cast<unsigned>(b.heads) * size, count = of_row * b.rows;
  for (unsigned e = threadIdx.x; e < count; e += kThreads) {
    const int64_t row = e / of_row, unit = e % of_row;
    to[(b.to + row * b.to_pitch) * size + unit] = from[(b.from + row * b.from_pitch) * size + unit];
  }
}

__global__ void add_kernel(const CellBlock* blocks, const float* from, float* to, int dim) {
  const CellBlock b = blocks[blockIdx.x];
  const unsigned of_row = static_cast<unsigned>(b.heads) * dim, count = of_row * b.rows;
  for (unsigned e = threadIdx.x; e < count; e += kThreads) {
    const int64_t row = e / of_row, at = e % of_row;
    to[(b.to + row * b.to_pitch) * dim + at] += from[(b.from + row * b.from_pitch) * dim + at];
  }
}

__global__ void merge_kernel(const CellBlock* blocks, Results from, Results to, int dim) {
  const CellBlock b = blocks[blockIdx.x];
  for_each_cell(b.rows, b.heads, [&](int row, int head) {
    const int64_t source = b.from + int64_t{row} * b.from_pitch + head;
    const int64_t target = b.to + int64_t{row} * b.to_pitch + head;
    const auto w = merge_weights(to.lse[target], from.lse[source]);
    for (int d = threadIdx.x % kLanes; d < dim; d += kLanes)
      to.out[target * dim + d] = w.a * to.out[target * dim + d] + w.b * from.out[source * dim + d];
    __syncwarp();  // all lanes have read the old lse
    if (threadIdx.x % kLanes == 0) to.lse[target] = w.lse;
  });
}

__global__ void merge_sinks_kernel(const RowBlock* blocks, Sinks sinks, Results home, int dim) {
  const RowBlock b = blocks[blockIdx.x];
  for_each_cell(b.rows, sinks.heads, [&](int row, int head) {
    const int64_t cell = (int64_t{b.home_row} + row) * sinks.heads + head;
    const auto w = merge_weights(home.lse[cell], sinks.logits[head]);
    for (int d = threadIdx.x % kLanes; d < dim; d += kLanes) home.out[cell * dim + d] *= w.a;
    __syncwarp();
    if (threadIdx.x % kLanes == 0) home.lse[cell] = w.lse;
  });
}

// One block a head; a thread's rows and the tree over threads are fixed, hence the order is.
__global__ void sink_gradients_kernel(Span<RowBlock> blocks, Sinks sinks, const float* lse,
                                      const float* delta, float* dsink) {
  __shared__ double sums[kThreads];
  const int head = blockIdx.x;
  double sum = 0;
  for (int i = 0; i < blocks.size; ++i)
    for (int row = threadIdx.x; row < blocks.rows[i].rows; row += kThreads) {
      const int64_t cell = (int64_t{blocks.rows[i].home_row} + row) * sinks.heads + head;
      sum -= static_cast<double>(expf(sinks.logits[head] - lse[cell])) * delta[cell];
    }
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) dsink[head] = static_cast<float>(sums[0]);
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
void copy_units(Span<CellBlock> blocks, const void* from, void* to, int bytes_of_cell,
                cudaStream_t stream) {
  copy_kernel<<<blocks.size, kThreads, 0, stream>>>(blocks.rows, static_cast<const Unit*>(from),
                                                    static_cast<Unit*>(to),
                                                    bytes_of_cell / static_cast<int>(sizeof(Unit)));
}

}  // namespace

int bytes_of(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

void shard(Span<RowBlock> blocks, const GlobalArray& from, void* to, ElementType to_type,
           cudaStream_t stream) {
  if (blocks.size == 0) return;
  with_type(from.type, [&]<typename From>(From) {
    if (to_type == ElementType::float32)
      shard_kernel<From><<<blocks.size, kThreads, 0, stream>>>(
          blocks.rows, from, from.columns_at_home(), static_cast<float*>(to));
    else  // the family takes what the caller has
      shard_kernel<From><<<blocks.size, kThreads, 0, stream>>>(
          blocks.rows, from, from.columns_at_home(), static_cast<From*>(to));
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

void unshard(Span<RowBlock> blocks, const float* from, const GlobalArray& to, cudaStream_t stream) {
  if (blocks.size == 0) return;
  with_type(to.type, [&]<typename To>(To) {
    unshard_kernel<To>
        <<<blocks.size, kThreads, 0, stream>>>(blocks.rows, from, to.columns_at_home(), to);
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

void delta(Span<RowBlock> blocks, const GlobalArray& dout, const GlobalArray& out, float* to,
           cudaStream_t stream) {
  if (blocks.size == 0) return;
  with_type(dout.type, [&]<typename Dout>(Dout) {
    with_type(out.type, [&]<typename Out>(Out) {
      delta_kernel<Dout, Out><<<blocks.size, kThreads, 0, stream>>>(blocks.rows, dout, out, to);
    });
  });
  RINGSIDE_CUDA(cudaGetLastError());
}

void copy(Span<CellBlock> blocks, const void* from, void* to, int bytes_of_cell,
          cudaStream_t stream) {
  if (blocks.size == 0) return;
  if (bytes_of_cell % 16 == 0)
    copy_units<uint4>(blocks, from, to, bytes_of_cell, stream);
  else if (bytes_of_cell % 4 == 0)
    copy_units<uint32_t>(blocks, from, to, bytes_of_cell, stream);
  else
    copy_units<uint16_t>(blocks, from, to, bytes_of_cell, stream);
  RINGSIDE_CUDA(cudaGetLastError());
}

void add(Span<CellBlock> blocks, const float* from, float* to, int dim, cudaStream_t stream) {
  if (blocks.size == 0) return;
  add_kernel<<<blocks.size, kThreads, 0, stream>>>(blocks.rows, from, to, dim);
  RINGSIDE_CUDA(cudaGetLastError());
}

void merge(Span<CellBlock> blocks, const Results& from, const Results& to, int dim,
           cudaStream_t stream) {
  if (blocks.size == 0) return;
  merge_kernel<<<blocks.size, kThreads, 0, stream>>>(blocks.rows, from, to, dim);
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

void merge_sinks(Span<RowBlock> blocks, const Sinks& sinks, const Results& home, int dim,
                 cudaStream_t stream) {
  if (blocks.size == 0) return;
  merge_sinks_kernel<<<blocks.size, kThreads, 0, stream>>>(blocks.rows, sinks, home, dim);
  RINGSIDE_CUDA(cudaGetLastError());
}

void sink_gradients(Span<RowBlock> blocks, const Sinks& sinks, const float* lse, const float* delta,
                    float* dsink, cudaStream_t stream) {
  sink_gradients_kernel<<<sinks.heads, kThreads, 0, stream>>>(blocks, sinks, lse, delta, dsink);
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside::move
