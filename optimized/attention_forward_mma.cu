// Attention forward on the tensor cores by portable mma.sync: bfloat16 and float16.
//
// FlashAttention-2's shape. A block of threads takes one item (a block of query rows of one
// segment) and one head; each warp owns 16 or 32 of the rows, keeps their output in registers and
// walks over the key blocks that the item sees, across all segments: scores = Q K^T, online softmax
// in powers of two, output += P V with P straight from registers. V arrives by cp.async while the
// scores are computed, the next K while they are weighed. In the end the result is merged into the
// float32 accumulators.
//
// Heads are the slow axis of the grid: what runs at one time shares keys and values in L2, and the
// heads of a group follow each other.
//
// What ideas brought, in TFLOP/s of visible pairs (H200, 2026-11-21, bfloat16, 2 x 16k causal with
// 16 heads at d128 or 32 at d64; "tail": 21 documents of one 32k pack, causal). FlashAttention 2
// (torch varlen_attn) ran at 338 and 297 beside.
//
//   32 rows a warp, not 16: K and V fragments serve twice      d128 292 -> 378, d64 277 -> 308
//   128 keys a block, not 64, where registers hold the scores                   d64 308 -> 333
//   the old maximum serves until outgrown by 2^8 (kSlack)      d128 368 -> 378
//   items longest first, not in order of rows                  d128 355 -> 370, d64 325 -> 331
//   d192: two blocks of 64 rows a multiprocessor, not one of 128              tail 281 -> 315
//   the same at d256: worse, not kept                                         tail 297 -> 291
//   two stages of K and V: not worth its code, not kept        d128 366 -> 370, d64 334 -> 336
#include "optimized/attention_mma.cuh"
#include "reference/partial.h"

namespace ringside::mma {
namespace {

template <int Rows, int Keys, int WarpRows, int BlocksPerSm>
struct BlockShape {
  static constexpr int kRows = Rows, kKeys = Keys, kWarpRows = WarpRows;
  static constexpr int kBlocksPerSm = BlocksPerSm;
};

// Query rows and key rows of a block, query rows of a warp, blocks of a multiprocessor.
template <typename Dims>
struct Tuning;
// clang-format off
template <> struct Tuning<HeadDims<64, 64>> : BlockShape<128, 128, 32, 2> {};
template <> struct Tuning<HeadDims<96, 96>> : BlockShape<128, 64, 32, 2> {};
template <> struct Tuning<HeadDims<128, 128>> : BlockShape<128, 64, 32, 2> {};
template <> struct Tuning<HeadDims<192, 128>> : BlockShape<128, 64, 32, 2> {};
template <> struct Tuning<HeadDims<192, 192>> : BlockShape<64, 64, 16, 2> {};
template <> struct Tuning<HeadDims<256, 256>> : BlockShape<128, 64, 16, 1> {};
// clang-format on

template <typename Element, typename Dims>
struct Config {
  using T = Element;
  using Shape = Tuning<Dims>;
  static constexpr int kQk = Dims::kQk, kV = Dims::kV;
  static constexpr int kRows = Shape::kRows, kKeys = Shape::kKeys;
  static constexpr int kM = Shape::kWarpRows / 16;  // fragments of 16 rows a warp
  static constexpr int kThreads = kRows / Shape::kWarpRows * 32;
  static constexpr int kBlocksPerSm = Shape::kBlocksPerSm;
  static constexpr int kKBytes = Tile<kQk>::bytes(kKeys), kVBytes = Tile<kV>::bytes(kKeys);
  static constexpr int kQBytes = Tile<kQk>::bytes(kRows);
  static constexpr int kSharedBytes = kQBytes + kKBytes + kVBytes;

  static_assert(kRows * kV * 4 <= kSharedBytes, "the output passes through the same memory");

  using Scores = Accumulator[kM][kKeys / 8];
  using Weights = FragmentA[kKeys / 16][kM];
  using Output = Accumulator[kM][kV / 8];
};

// The running softmax of a lane's rows (m, half): row 16 m + 8 half + lane / 4 of its warp.
template <typename C>
struct OnlineSoftmax {
  // The maximum that weights are relative to, before scaling; a lane's own columns' share of the
  // sum.
  float top[C::kM][2], sum[C::kM][2];
  float slack;

  // With `exact`, the maximum is that of the scores, as max_logit asks.
  __device__ explicit OnlineSoftmax(bool exact) : slack(exact ? 0 : kSlack) {
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) top[m][half] = -INFINITY, sum[m][half] = 0;
  }

  // Turns scores into weights exp2(scale_log2 * (score - top)) and keeps output and sum in step.
  __device__ void update(typename C::Scores& scores, typename C::Output& output, float scale_log2) {
    float block_top[C::kM][2];
    bool outgrown = false;
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        block_top[m][half] = row_top(scores[m], half);
        outgrown |= (block_top[m][half] - top[m][half]) * scale_log2 > slack;
      }
    if (__any_sync(~0u, outgrown)) raise(block_top, output, scale_log2);
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // A row that saw nothing yet has top -inf: its scores are all -inf and must become zero.
        const float shift = top[m][half] == -INFINITY ? 0 : top[m][half] * scale_log2;
#pragma unroll
        for (int n = 0; n < C::kKeys / 8; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[m][n][i] = exp2_fast(fmaf(scores[m][n][i], scale_log2, -shift));
            sum[m][half] += scores[m][n][i];
          }
      }
  }

  __device__ float highest(int rows) const {  // of `rows` rows from the lane's first on
    float result = -INFINITY;
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (16 * m + 8 * half < rows) result = fmaxf(result, top[m][half]);
    return result;
  }

 private:
  // The old maximum serves until a row outgrows it by 2^8: weights stay far from overflow, the
  // common factor cancels in the end, and most blocks need no pass over the output.
  static constexpr float kSlack = 8;

  __device__ static float row_top(const Accumulator (&scores)[C::kKeys / 8], int half) {
    float result = -INFINITY;
#pragma unroll
    for (int n = 0; n < C::kKeys / 8; ++n)
      result = fmaxf(result, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    result = fmaxf(result, __shfl_xor_sync(~0u, result, 1));
    return fmaxf(result, __shfl_xor_sync(~0u, result, 2));
  }

  __device__ void raise(const float (&block_top)[C::kM][2], typename C::Output& output,
                        float scale_log2) {
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float raised = fmaxf(top[m][half], block_top[m][half]);
        const float factor =
            raised == -INFINITY ? 1 : exp2_fast((top[m][half] - raised) * scale_log2);
        top[m][half] = raised;
        sum[m][half] *= factor;
#pragma unroll
        for (int n = 0; n < C::kV / 8; ++n)
          output[m][n][2 * half] *= factor, output[m][n][2 * half + 1] *= factor;
      }
  }
};

// A warp's rows of the output on their way to memory, through shared memory: as they lie in
// registers, a warp would touch eight rows with every access, and the multiprocessor's path to
// memory is what limits the many short items of a ring.
template <typename C>
class OutputTile {
 public:
  static constexpr int kWarpRows = 16 * C::kM, kV = C::kV;

  __device__ OutputTile(uint8_t* shared, int warp_row)
      : tile_(reinterpret_cast<float*>(shared) + warp_row * kV) {}

  // What a lane has of a row, columns 8 n and 8 n + 1 behind its first.
  __device__ void put(int row, const Accumulator (&output)[kV / 8], int half, float factor) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kV / 8; ++n)
      *reinterpret_cast<float2*>(at(row, 2 * n + lane % 4 / 2) + lane % 2 * 2) = {
          factor * output[n][2 * half], factor * output[n][2 * half + 1]};
  }

  // to = before[row] * to + this, for the rows that have a `before`; all reads of a batch first.
  __device__ void add_to(float* to, int64_t row_stride, const float* before, int dim) const {
    constexpr int kFours = kV / 4, kCount = kWarpRows * kFours / 32;
    constexpr int kBatch = 8;
    static_assert(kCount % kBatch == 0);
    for (int first = 0; first < kCount; first += kBatch) {
      float4 old[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const Place p((first + i) * 32, kFours);
        old[i] = before[p.row] > 0 && 4 * p.part < dim
                     ? *reinterpret_cast<const float4*>(to + p.row * row_stride + 4 * p.part)
                     : float4{0, 0, 0, 0};
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const Place p((first + i) * 32, kFours);
        const float weight = before[p.row];
        if (weight < 0 || 4 * p.part >= dim) continue;
        const float4 own = *reinterpret_cast<const float4*>(at(p.row, p.part));
        *reinterpret_cast<float4*>(to + p.row * row_stride + 4 * p.part) = {
            fmaf(weight, old[i].x, own.x), fmaf(weight, old[i].y, own.y),
            fmaf(weight, old[i].z, own.z), fmaf(weight, old[i].w, own.w)};
      }
    }
  }

  // The rows that have a `before`, in T.
  template <typename T>
  __device__ void copy_to(T* to, int64_t row_stride, const float* before, int dim) const {
    constexpr int kEights = kV / 8;
#pragma unroll 4
    for (int first = 0; first < kWarpRows * kEights; first += 32) {
      const Place p(first, kEights);
      if (before[p.row] < 0 || 8 * p.part >= dim) continue;
      const float4 x = *reinterpret_cast<const float4*>(at(p.row, 2 * p.part));
      const float4 y = *reinterpret_cast<const float4*>(at(p.row, 2 * p.part + 1));
      *reinterpret_cast<uint4*>(to + p.row * row_stride + 8 * p.part) = {
          pack<T>(x.x, x.y), pack<T>(x.z, x.w), pack<T>(y.x, y.y), pack<T>(y.z, y.w)};
    }
  }

 private:
  struct Place {  // of a lane: a row, and a part of it
    int row, part;
    __device__ Place(int first, int parts)
        : row((first + static_cast<int>(threadIdx.x) % 32) / parts),
          part((first + static_cast<int>(threadIdx.x) % 32) % parts) {}
  };

  // Four columns of a row; turned by the row, so that neither way meets a bank twice.
  __device__ float* at(int row, int four) const { return tile_ + row * kV + 4 * (four ^ row % 8); }

  float* tile_;
};

// Merges a warp's rows into the accumulators; where nothing was seen before, nothing is read. Final
// rows are written in T instead, zeros where nothing was seen. Shared memory is free by now.
template <typename C>
__device__ void merge(const ForwardArguments& arguments, const WorkItem& item, int head,
                      int warp_row, const OnlineSoftmax<C>& softmax,
                      const typename C::Output& output, uint8_t* shared) {
  using T = typename C::T;
  __shared__ float all_before[C::kRows];  // the weight of what was there; -1: leave the row alone
  float* before = all_before + warp_row;
  const AttentionShape& shape = arguments.shape;
  const int lane = threadIdx.x % 32;
  OutputTile<C> tile(shared, warp_row);
#pragma unroll
  for (int m = 0; m < C::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(softmax.sum[m][half]);
      const int of_warp = 16 * m + 8 * half + lane / 4, row = item.begin + warp_row + of_warp;
      const bool inside = row < item.end, stored = inside && sum != 0;
      float* lse = arguments.lse + (int64_t{item.own.row} + row) * shape.num_heads + head;
      const float own_lse = softmax.top[m][half] * folded_scale(shape) + logf(sum);
      const auto weights = merge_weights(stored ? *lse : -INFINITY, own_lse);
      __syncwarp();  // the four lanes of a row have read it
      if (stored && lane % 4 == 0) *lse = weights.lse;
      if (lane % 4 == 0)
        before[of_warp] = arguments.is_final ? (inside ? 0 : -1) : (stored ? weights.a : -1);
      tile.put(of_warp, output[m], half, stored ? weights.b / sum : 0);
    }
  __syncwarp();
  const int64_t first = int64_t{item.own.row} + item.begin + warp_row;
  if (arguments.is_final)
    tile.template copy_to<T>(row_of<T>(arguments.out, first, head), arguments.out.row_stride,
                             before, shape.head_dim_v);
  else
    tile.add_to(row_of<float>(arguments.out, first, head), arguments.out.row_stride, before,
                shape.head_dim_v);
}

// With the largest score of a warp's rows.
__device__ void raise_max_logit(const ForwardArguments& arguments, int head, float highest) {
  for (int lanes = 16; lanes > 0; lanes /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, lanes));
  if (threadIdx.x % 32 == 0 && highest != -INFINITY)
    atomicMax(arguments.max_logit + arguments.shape.first_head + head,
              ordered_key(highest * folded_scale(arguments.shape)));
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    attention_forward(const __grid_constant__ ForwardArguments arguments) {
  using T = typename C::T;
  extern __shared__ __align__(128) uint8_t shared[];
  const WorkList& work = arguments.work;
  if (blockIdx.x >= *work.num_items) return;
  const WorkItem& item = work.items[blockIdx.x];
  const AttentionShape& shape = arguments.shape;
  const int head = blockIdx.y, kv_head = kv_head_of(shape, head);
  const int warp_row = threadIdx.x / 32 * 16 * C::kM;
  const uint32_t q_tile = shared_address(shared), k_tile = q_tile + C::kQBytes;
  const uint32_t v_tile = k_tile + C::kKBytes;
  load_tile<C::kQk, C::kRows, C::kThreads>(
      q_tile, row_of<T>(arguments.q, int64_t{item.own.row} + item.begin, head),
      arguments.q.row_stride, item.end - item.begin, shape.head_dim_qk);
  KeyBlocks<C::kKeys> next(work, item);
  const auto load_k = [&] {
    load_tile<C::kQk, C::kKeys, C::kThreads>(
        k_tile, row_of<T>(arguments.k, int64_t{next.row} + next.begin, kv_head),
        arguments.k.row_stride, next.end - next.begin, shape.head_dim_qk);
  };
  if (next.valid()) load_k();

  const float scale_log2 = folded_scale(shape) * kLog2E;
  OnlineSoftmax<C> softmax(arguments.max_logit != nullptr);
  typename C::Output output;
  clear(output);
  while (next.valid()) {
    wait_for_copies();
    __syncthreads();  // K is there, V is used up
    load_tile<C::kV, C::kKeys, C::kThreads>(
        v_tile, row_of<T>(arguments.v, int64_t{next.row} + next.begin, kv_head),
        arguments.v.row_stride, next.end - next.begin, shape.head_dim_v);
    typename C::Scores scores;
    clear(scores);
    multiply_rows<T, C::kQk>(scores, Tile<C::kQk>::lane_down(q_tile, warp_row),
                             Tile<C::kQk>::lane_across(k_tile));

    const int begin = next.begin, partner = next.partner;
    const bool all_seen = next.is_clear();
    next.advance(work, item);
    wait_for_copies();
    __syncthreads();  // V is there, K is used up
    if (next.valid()) load_k();
    apply_unfolded_scale(scores, shape);
    if (!all_seen) hide_unseen(scores, work, item, partner, begin, warp_row);
    softmax.update(scores, output, scale_log2);
    typename C::Weights weights;
    as_left_operand<T>(weights, scores);
    multiply_columns<T, C::kV, 1>(output, weights, Tile<C::kV>::lane_down(v_tile));
  }
  wait_for_copies();  // of an item that meets nothing
  __syncthreads();    // nobody needs Q, K or V any more
  merge<C>(arguments, item, head, warp_row, softmax, output, shared);
  if (arguments.max_logit != nullptr)
    raise_max_logit(arguments, head,
                    softmax.highest(item.end - item.begin - warp_row - threadIdx.x % 32 / 4));
}

}  // namespace

bool supports(const AttentionShape& shape) {
  const auto fits = [](int dim) {
    return dim > 0 && dim <= 256 && dim % 8 == 0;
  };  // 16-byte copies
  return shape.type != ElementType::float32 && fits(shape.head_dim_qk) && fits(shape.head_dim_v);
}

int forward_rows(const AttentionShape& shape) {
  return with_head_dims(shape, [](auto dims) -> int { return Tuning<decltype(dims)>::kRows; });
}

cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream) {
  for (const DeviceMatrix& matrix : {arguments.q, arguments.k, arguments.v, arguments.out})
    if (!is_aligned(matrix)) return cudaErrorInvalidValue;
  return with_element_type(arguments.shape.type, [&](auto element) {
    return with_head_dims(arguments.shape, [&](auto dims) {
      using C = Config<decltype(element), decltype(dims)>;
      const dim3 grid(arguments.work.max_items, arguments.shape.num_heads);
      return launch(attention_forward<C>, grid, C::kThreads, C::kSharedBytes, stream, arguments);
    });
  });
}

}  // namespace ringside::mma

namespace ringside {

KernelFamily mma_family() {
  return {.name = "mma",
          .supports = mma::supports,
          .forward_rows = mma::forward_rows,
          .backward_query_rows = mma::backward_query_rows,
          .backward_key_rows = mma::backward_key_rows,
          .forward = mma::forward,
          .backward = mma::backward,
          .final_results = true};
}

}  // namespace ringside
