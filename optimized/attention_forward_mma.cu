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
//   V and the next K called into L2 at once, not kept: 256 documents of 128 tokens 218.6 -> 217.0
//   microseconds, the long tail                                1.889 -> 1.913 ms
//
// A ring of 4 under zigzag, all ranks, in milliseconds (16 x 4k causal, 16 heads, d128; one
// rank 3.1 without a ring, 3.3 if nothing is accumulated):
//
//   merged in the end, read and written by turns                                          5.2
//     -> all reads of a row first                                                         3.9
//     -> read in the beginning, beside the first keys, and gone on from                   3.9
//     -> in tiles of 8 x 8; first launches read nothing; items loaded at once             3.8
//     -> row after row, past L1, and little kept over the loop                            3.5
//   not kept, merged in the end, and: called into L2 beforehand; through shared memory, a
//   row an access; there by cp.async beside the keys; added to without being read
//                                                                     3.9, 4.0, 3.9, 3.8
//   not kept, read in the beginning: 16 bytes a lane, in registers, where they wait,
//   neighbours lie apart; by swaps with neighbours, in any order of columns      5.1, 4.6
//   not kept: called into L2 an item ahead; every second block of threads begins later; a
//   block goes on with further heads, whose first keys come early (the loop loses registers)
//                                                                     3.8, 3.8, 3.9
#include "optimized/attention_mma.cuh"
#include "optimized/forward_results_mma.cuh"
#include "optimized/online_softmax_mma.cuh"

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

  using Scores = Accumulator[kM][kKeys / 8];
  using Weights = FragmentA[kKeys / 16][kM];
  using Output = Accumulator[kM][kV / 8];
};

// With the largest score of a warp's rows.
__device__ void raise_max_logit(const ForwardArguments& arguments, int head, float highest) {
  for (int lanes = 16; lanes > 0; lanes /= 2)
    highest = max_or_nan(highest, __shfl_xor_sync(~0u, highest, lanes));
  if (threadIdx.x % 32 == 0 && highest != -INFINITY)
    atomicMax(arguments.max_logit + arguments.shape.first_head + head,
              ordered_key(highest * folded_scale(arguments.shape)));
}

// One item and head. Weights of 0 hide values that are not seen; where some of them are infinite or
// NaN, that is not enough: true says so, and nothing has been written. The item begins again then,
// in a `kCareful` way.
template <typename C, bool kResumes, bool kCareful>
__device__ __forceinline__ bool attend(const ForwardArguments& arguments, uint8_t* shared,
                                       int index) {
  using T = typename C::T;
  const WorkList& work = arguments.work;
  const WorkItem& item = work.items[index];
  if (!(is_item(work, item, index) & is_sound(item))) return false;
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
  OnlineSoftmax<C> softmax(arguments.max_logit != nullptr, scale_log2);
  typename C::Output output;
  if (kResumes) {
    resume<C>(arguments, LaneRows<C>(item), head, softmax, output);
  } else {
    softmax.start(), clear(output);
  }
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
    if (kCareful || all_seen)
      __syncthreads();  // V is there, K is used up
    else if (__syncthreads_or(copied_wild<T, C::kV, C::kKeys, C::kThreads>(v_tile)))
      return true;
    if (next.valid()) load_k();
    apply_unfolded_scale(scores, shape);
    if (!all_seen) assign_unseen(scores, -INFINITY, work, item, partner, begin, warp_row);
    softmax.update(scores, output, scale_log2, item, warp_row);
    typename C::Weights weights;
    as_left_operand<T>(weights, scores);
    if (kCareful && !all_seen)
      multiply_seen_columns<T, C::kV, 1>(
          output, weights, {v_tile, 0, 0},
          SeenKeysOfLane<C::kM>(work, item, partner, begin, warp_row));
    else
      multiply_columns<T, C::kV, 1>(output, weights, Tile<C::kV>::lane_down(v_tile));
  }
  wait_for_copies();  // of an item that meets nothing
  finish<C>(arguments, LaneRows<C>(item), head, softmax, output);
  if (arguments.max_logit != nullptr) raise_max_logit(arguments, head, softmax.highest);
  return false;
}

// Apart, with registers of its own: what it needs must cost the other nothing.
template <typename C, bool kResumes>
__device__ __noinline__ void attend_carefully(const ForwardArguments& arguments, uint8_t* shared,
                                              int index) {
  __syncthreads();  // all that the other way has loaded is used up
  attend<C, kResumes, true>(arguments, shared, index);
}

template <typename C, bool kResumes, Turns turns>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    attention_forward(const __grid_constant__ ForwardArguments arguments) {
  extern __shared__ __align__(128) uint8_t shared[];
  for_each_item<turns>(arguments.work, [&](int index) {
    if (attend<C, kResumes, false>(arguments, shared, index))
      attend_carefully<C, kResumes>(arguments, shared, index);
  });
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
  const int64_t cells_of_row = int64_t{arguments.shape.num_heads} * arguments.shape.head_dim_v;
  if (arguments.out_in_tiles &&
      (arguments.is_final || arguments.out.row_stride != cells_of_row))  // see tiled_rows.h
    return cudaErrorInvalidValue;
  return with_element_type(arguments.shape.type, [&](auto element) {
    return with_head_dims(arguments.shape, [&](auto dims) {
      using C = Config<decltype(element), decltype(dims)>;
      const bool resumes = !arguments.is_first && !arguments.is_final;
      return with_turns(arguments.work, arguments.shape.num_heads, [&](dim3 grid, auto turns) {
        return launch(
            resumes ? attention_forward<C, true, turns> : attention_forward<C, false, turns>, grid,
            C::kThreads, C::kSharedBytes, stream, arguments);
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
          .tiled_results = true};
}

}  // namespace ringside
