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
#include "optimized/tiled_rows.h"

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

// threadIdx.x, for what happens once an item: what follows from it is computed where it is needed,
// and takes no register (or a place in memory, to be fetched again) from the loop between.
__device__ inline int fresh_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// A lane's rows (m, half): row 16 m + 8 half + lane / 4 of its warp, here by index 2 m + half.
template <typename C>
struct LaneRows {
  static constexpr int kRows = 2 * C::kM;
  int64_t first;  // of the resident buffer; the next ones are 8 behind each other
  int left;       // rows of the item from the first on

  __device__ explicit LaneRows(const WorkItem& item) {
    const int thread = fresh_thread(), row = thread / 32 * 16 * C::kM + thread % 32 / 4;
    first = int64_t{item.own.row} + item.begin + row;
    left = item.end - item.begin - row;
  }
  __device__ bool has(int index) const { return 8 * index < left; }
};

// The running softmax of a lane's rows.
template <typename C>
struct OnlineSoftmax {
  // The maximum that weights are relative to, before scaling; a lane's own columns' share of the
  // sum.
  float top[C::kM][2], sum[C::kM][2];
  float slack;
  float highest = -INFINITY;  // score, if asked for

  __device__ void start() {
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) top[m][half] = -INFINITY, sum[m][half] = 0;
  }

  // Asked for the highest score, no block is let pass without a look at it.
  __device__ explicit OnlineSoftmax(bool with_highest) : slack(with_highest ? -INFINITY : kSlack) {}

  // Turns scores into weights exp2(scale_log2 * (score - top)) and keeps output and sum in step.
  __device__ void update(typename C::Scores& scores, typename C::Output& output, float scale_log2,
                         const WorkItem& item, int warp_row) {
    float block_top[C::kM][2];
    bool outgrown = false;
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        block_top[m][half] = row_top(scores[m], half);
        outgrown |= (block_top[m][half] - top[m][half]) * scale_log2 > slack;
      }
    if (__any_sync(~0u, outgrown)) raise(block_top, output, scale_log2, item, warp_row);
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

  // The old maximum serves until a row outgrows it by 2^8: weights stay far from overflow, the
  // common factor cancels in the end, and most blocks need no pass over the output.
  static constexpr int kSlack = 8;

 private:
  __device__ static float row_top(const Accumulator (&scores)[C::kKeys / 8], int half) {
    float result = -INFINITY;
#pragma unroll
    for (int n = 0; n < C::kKeys / 8; ++n)
      result = fmaxf(result, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    result = fmaxf(result, __shfl_xor_sync(~0u, result, 1));
    return fmaxf(result, __shfl_xor_sync(~0u, result, 2));
  }

  __device__ void raise(const float (&block_top)[C::kM][2], typename C::Output& output,
                        float scale_log2, const WorkItem& item, int warp_row) {
    const int rows = item.end - item.begin - warp_row - static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (16 * m + 8 * half < rows) highest = fmaxf(highest, block_top[m][half]);
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

// visit(n) for the groups of 8 columns of a row, dim / 8 of them: all that are compiled, as a rule,
// and then none is asked for.
template <typename C, typename Visit>
__device__ void for_each_group(int dim, Visit visit) {
  if (dim == C::kV) {
#pragma unroll
    for (int n = 0; n < C::kV / 8; ++n) visit(n);
  } else {
#pragma unroll
    for (int n = 0; n < C::kV / 8; ++n)
      if (8 * n < dim) visit(n);
  }
}

// visit(two accumulators, index of a lane's row, n) for the rows that are wanted: where `out` has a
// head's. Row after row, as each has one address, in tiles as in plain rows: addresses by turns
// share registers, and stores wait for each other.
template <typename C, typename Visit>
__device__ void for_each_accumulator(const ForwardArguments& arguments, const LaneRows<C>& rows,
                                     const bool (&wanted)[2 * C::kM], int head, Visit visit) {
  const int heads = arguments.shape.num_heads, dim = arguments.shape.head_dim_v;
  const int column = fresh_thread() % 4 * 2;
  const auto visit_rows = [&](float* begin, auto of_group) {
    constexpr int kStep = decltype(of_group)::value;  // from a group to the next
#pragma unroll
    for (int i = 0; i < rows.kRows; ++i) {
      float* row = begin + 8 * i * arguments.out.row_stride;
      if (wanted[i])
        for_each_group<C>(dim,
                          [&](int n) { visit(reinterpret_cast<float2&>(row[n * kStep]), i, n); });
    }
  };
  if (arguments.out_in_tiles)
    visit_rows(static_cast<float*>(arguments.out.data) +
                   tiled_offset(rows.first, head, column, heads, dim),
               std::integral_constant<int, kTileCells>());
  else
    visit_rows(row_of<float>(arguments.out, rows.first, head) + column,
               std::integral_constant<int, 8>());
}

// A warp's rows as earlier launches left them: normalised output, and lse; (0, -inf) saw nothing.
// The softmax goes on as if a first key had had that score and that value. In float16 its weight is
// not 1 but 2^kSlack, as large as weights become: later ones, a key among all before it, are far
// smaller, and where a row has seen 10,000 keys they would lose digits. bfloat16 loses none.
//
// Accumulators pass by the L1 cache (ld.cg, st.cg), where the loop's spilled registers lie.
template <typename C>
__device__ void resume(const ForwardArguments& arguments, const LaneRows<C>& rows, int head,
                       OnlineSoftmax<C>& softmax, typename C::Output& output) {
  const AttentionShape& shape = arguments.shape;
  const float unfolded = 1 / folded_scale(shape);
  constexpr int kPower = std::is_same_v<typename C::T, __half> ? OnlineSoftmax<C>::kSlack : 0;
  constexpr float kWeight = 1 << kPower;
  const float* lse_of_first = arguments.lse + rows.first * shape.num_heads + head;
  float lse[rows.kRows];
  bool there[rows.kRows];
#pragma unroll
  for (int i = 0; i < rows.kRows; ++i) {
    there[i] = rows.has(i);
    lse[i] = there[i] ? lse_of_first[8 * i * shape.num_heads] : -INFINITY;
  }
  clear(output);
  for_each_accumulator<C>(arguments, rows, there, head, [&](const float2& from, int i, int n) {
    reinterpret_cast<float2&>(output[i / 2][n][i % 2 * 2]) = __ldcg(&from);
  });
#pragma unroll
  for (int i = 0; i < rows.kRows; ++i) {
    softmax.top[i / 2][i % 2] = (lse[i] - kPower / kLog2E) * unfolded;
    softmax.sum[i / 2][i % 2] = lse[i] != -INFINITY && threadIdx.x % 4 == 0 ? kWeight : 0;
  }
#pragma unroll
  for (int m = 0; m < C::kM; ++m)
#pragma unroll
    for (int n = 0; n < C::kV / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) output[m][n][i] *= kWeight;
}

// Writes a warp's rows: final ones in T, with zeros where nothing was seen; others where something
// was seen.
template <typename C>
__device__ void finish(const ForwardArguments& arguments, const LaneRows<C>& rows, int head,
                       const OnlineSoftmax<C>& softmax, const typename C::Output& output) {
  using T = typename C::T;
  const AttentionShape& shape = arguments.shape;
  float* lse_of_first = arguments.lse + rows.first * shape.num_heads + head;
  float factor[rows.kRows];
  bool writes[rows.kRows];
#pragma unroll
  for (int i = 0; i < rows.kRows; ++i) {
    const float sum = quad_sum(softmax.sum[i / 2][i % 2]);
    const float lse = softmax.top[i / 2][i % 2] * folded_scale(shape) + logf(sum);
    const bool saw = rows.has(i) && sum != 0;
    factor[i] = saw ? __fdividef(1, sum) : 0;
    writes[i] = arguments.is_final ? rows.has(i) : saw;
    if (saw && threadIdx.x % 4 == 0) lse_of_first[8 * i * shape.num_heads] = lse;
  }
  const auto result = [&](int i, int n) -> float2 {
    const float* two = output[i / 2][n] + i % 2 * 2;
    return {factor[i] * two[0], factor[i] * two[1]};
  };
  if (arguments.is_final) {
    T* begin = row_of<T>(arguments.out, rows.first, head) + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < rows.kRows; ++i) {
      T* row = begin + 8 * i * arguments.out.row_stride;
      if (writes[i])
        for_each_group<C>(shape.head_dim_v, [&](int n) {
          const float2 two = result(i, n);
          reinterpret_cast<uint32_t&>(row[8 * n]) = pack<T>(two.x, two.y);
        });
    }
  } else {
    for_each_accumulator<C>(arguments, rows, writes, head,
                            [&](float2& to, int i, int n) { __stcg(&to, result(i, n)); });
  }
}

// With the largest score of a warp's rows.
__device__ void raise_max_logit(const ForwardArguments& arguments, int head, float highest) {
  for (int lanes = 16; lanes > 0; lanes /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, lanes));
  if (threadIdx.x % 32 == 0 && highest != -INFINITY)
    atomicMax(arguments.max_logit + arguments.shape.first_head + head,
              ordered_key(highest * folded_scale(arguments.shape)));
}

template <typename C, bool kResumes>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    attention_forward(const __grid_constant__ ForwardArguments arguments) {
  using T = typename C::T;
  extern __shared__ __align__(128) uint8_t shared[];
  const WorkList& work = arguments.work;
  const WorkItem& item = work.items[blockIdx.x];
  if (!(is_item(work, item) & is_sound(item))) return;
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
    __syncthreads();  // V is there, K is used up
    if (next.valid()) load_k();
    apply_unfolded_scale(scores, shape);
    if (!all_seen) hide_unseen(scores, work, item, partner, begin, warp_row);
    softmax.update(scores, output, scale_log2, item, warp_row);
    typename C::Weights weights;
    as_left_operand<T>(weights, scores);
    multiply_columns<T, C::kV, 1>(output, weights, Tile<C::kV>::lane_down(v_tile));
  }
  wait_for_copies();  // of an item that meets nothing
  finish<C>(arguments, LaneRows<C>(item), head, softmax, output);
  if (arguments.max_logit != nullptr) raise_max_logit(arguments, head, softmax.highest);
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
      const bool resumes = !arguments.is_first && !arguments.is_final;
      return launch(resumes ? attention_forward<C, true> : attention_forward<C, false>, grid,
                    C::kThreads, C::kSharedBytes, stream, arguments);
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
