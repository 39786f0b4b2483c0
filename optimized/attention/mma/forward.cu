// Attention forward on the tensor cores by portable mma.sync: bfloat16 and float16.
//
// FlashAttention-2's shape. A block of threads takes one item (a block of query rows of one
// segment) and one head; each warp owns 16 or 32 of the rows, keeps their output in registers and
// walks over the key blocks that the item sees, across all segments: scores = Q K^T, online softmax
// in powers of two, output += P V with P straight from registers. V arrives by cp.async while the
// scores are computed, the next K while they are weighed. Rows that an earlier launch has seen go
// on from their float32 accumulators.
//
// Heads are the slow axis of the grid: what runs at one time shares keys and values in L2, and the
// heads of a group follow each other.
//
// LADDER.md says what each idea brought, those that were not kept too. The hot loop is fickle: time
// it after every edit.
#include "optimized/attention/mma/common.cuh"
#include "optimized/attention/mma/online_softmax.cuh"
#include "optimized/attention/mma/results.cuh"

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
template <> struct Tuning<HeadDims<192, 192>> : BlockShape<128, 64, 16, 2> {};
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
  static constexpr int kKBytes = SharedTile<kQk>::bytes(kKeys),
                       kVBytes = SharedTile<kV>::bytes(kKeys);
  static constexpr int kQBytes = SharedTile<kQk>::bytes(kRows);
  static constexpr int kSharedBytes = kQBytes + kKBytes + kVBytes;

  using Scores = Accumulator[kM][kKeys / 8];
  using Weights = FragmentA[kKeys / 16][kM];
  using Output = Accumulator[kM][kV / 8];
};

// With the largest score of a warp's rows, or NaN, as then a sum is.
template <typename C>
__device__ void raise_max_logit(const ForwardParameters& arguments, const LaneRows<C>& rows,
                                int head, const OnlineSoftmax<C>& softmax) {
  float highest = softmax.highest;
#pragma unroll
  for (int i = 0; i < rows.kRows; ++i)
    if (rows.has(i) && isnan(softmax.sum[i / 2][i % 2])) highest = softmax.sum[i / 2][i % 2];
  for (int lanes = 16; lanes > 0; lanes /= 2)
    highest = max_or_nan(highest, __shfl_xor_sync(~0u, highest, lanes));
  if (threadIdx.x % 32 == 0 && highest != -INFINITY)
    atomicMax(arguments.max_logit + arguments.shape.first_head + head,
              ordered_key(highest * folded_scale(arguments.shape)));
}

template <typename C, bool kResumes>
__device__ __forceinline__ void attend(const ForwardParameters& arguments, int index) {
  using T = typename C::T;
  extern __shared__ __align__(128) uint8_t shared[];
  const WorkList& work = arguments.work;
  const WorkItem& item = work.items[index];
  if (!(is_item(work, item, index) & load_at_once(item))) return;
  const AttentionShape& shape = arguments.shape;
  const int head = blockIdx.y, kv_head = kv_head_of(shape, head);
  const int warp_row = threadIdx.x / 32 * 16 * C::kM;
  const uint32_t q_tile = shared_address(shared), k_tile = q_tile + C::kQBytes;
  const uint32_t v_tile = k_tile + C::kKBytes;
  uint8_t* values = shared + C::kQBytes + C::kKBytes;
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
  if (kResumes && (item.alone & kAloneBefore) == 0) {
    resume<C>(arguments, LaneRows<C>(item), head, softmax, output);
  } else {
    softmax.start(), clear(output);
  }
  bool drops = false;  // values that are not finite, and some row does not see
  while (next.valid()) {
    wait_for_copies();
    __syncthreads();  // K is there, V is used up
    load_tile<C::kV, C::kKeys, C::kThreads>(
        v_tile, row_of<T>(arguments.v, int64_t{next.row} + next.begin, kv_head),
        arguments.v.row_stride, next.end - next.begin, shape.head_dim_v);
    typename C::Scores scores;
    clear(scores);
    multiply_rows<T, C::kQk>(scores, SharedTile<C::kQk>::lane_down(q_tile, warp_row),
                             SharedTile<C::kQk>::lane_across(k_tile));

    const int begin = next.begin, partner = next.partner;
    const bool all_seen = next.is_clear();
    next.advance(work, item);
    wait_for_copies();
    if (!all_seen && !is_own_part_finite<T, C::kV, C::kKeys, C::kThreads>(values)) {
      drop_not_finite<T, C::kV, C::kKeys, C::kThreads>(values, [](int) { return true; });
      drops = true;
    }
    __syncthreads();  // V is there, K is used up
    if (next.valid()) load_k();
    apply_unfolded_scale(scores, shape);
    if (!all_seen) hide_unseen(scores, -INFINITY, work, item, partner, begin, warp_row);
    softmax.update(scores, output, scale_log2, item, warp_row);
    typename C::Weights weights;
    as_left_operand<T>(weights, scores);
    multiply_columns<T, C::kV, 1>(output, weights, SharedTile<C::kV>::lane_down(v_tile));
  }
  wait_for_copies();  // of an item that meets nothing
  finish<C>(arguments, item, head, softmax, output);
  if (arguments.max_logit != nullptr)
    raise_max_logit<C>(arguments, LaneRows<C>(item), head, softmax);
  if (__syncthreads_or(drops)) seen_pairs::add_values<T, C::kKeys>(arguments, item, head);
}

template <typename C, bool kResumes, Turns turns>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    attention_forward(const __grid_constant__ ForwardParameters arguments) {
  for_each_item<turns>(arguments.work, [&](int index) { attend<C, kResumes>(arguments, index); });
}

}  // namespace

bool supports(const AttentionShape& shape, const DeviceProperties&) {
  const auto fits = [](int dim) {
    return dim > 0 && dim <= 256 && dim % 8 == 0;
  };  // 16-byte copies
  return shape.type != ElementType::float32 && fits(shape.head_dim_qk) && fits(shape.head_dim_v);
}

int forward_rows(const AttentionShape& shape) {
  return with_head_dims(shape, [](auto dims) -> int { return Tuning<decltype(dims)>::kRows; });
}

cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream) {
  if (arguments.accumulate == Accumulate::only && arguments.final_out.data != nullptr)
    return cudaErrorInvalidValue;  // of two places
  for (const DeviceMatrix& matrix :
       {arguments.q, arguments.k, arguments.v, arguments.out, arguments.final_out})
    if (!is_aligned(matrix)) return cudaErrorInvalidValue;
  const int64_t cells_of_row = int64_t{arguments.shape.num_heads} * arguments.shape.head_dim_v;
  const bool final = arguments.accumulate == Accumulate::only;
  if (arguments.layout == AccumulatorLayout::tiles &&
      (final || arguments.out.row_stride != cells_of_row))  // see accumulator_tiles.h
    return cudaErrorInvalidValue;
  return with_element_type(arguments.shape.type, [&](auto element) {
    return with_head_dims(arguments.shape, [&](auto dims) {
      using C = Config<decltype(element), decltype(dims)>;
      const bool resumes = arguments.accumulate == Accumulate::merge;
      return with_turns(arguments.work, arguments.shape.num_heads, [&](dim3 grid, auto turns) {
        return launch_with_shared(
            resumes ? attention_forward<C, true, turns> : attention_forward<C, false, turns>, grid,
            C::kThreads, C::kSharedBytes, stream, ForwardParameters(arguments));
      });
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
          .final_results = true,
          .starts_anew = true,
          .tiled_results = true};
}

}  // namespace ringside
