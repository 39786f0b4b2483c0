// Attention backward on the tensor cores by portable mma.sync: bfloat16 and float16.
//
// Key blocks outside, query blocks inside. A block of threads takes one item (a block of key rows)
// and one key head, keeps dk and dv in registers, and walks over every query block that sees it,
// across segments and across the query heads of the group: dk and dv are added to memory once.
// Scores are computed transposed, [keys][queries], so that weights and their gradient are the left
// operands of dv and dk as they lie in registers. Warps that share the columns of dk and dv also
// share the queries to score, and exchange them through shared memory. The gradient of the scores
// passes through it anyhow, for dq = dS K; that product runs one block late, so that one barrier a
// block is enough for it and for the copies.
//
// dq goes to memory by float32 atomic adds. Deterministic mode leaves it out and a second kernel,
// query blocks outside, computes it again from scratch: 7 products instead of 5, no workspace.
//
// LADDER.md says what each idea brought.
#include "optimized/attention/mma/common.cuh"

namespace ringside::mma {
namespace {

template <int Queries, int Step, int Keys, int WarpKeys, int Split, int DqWarps, int BlocksPerSm>
struct BlockShape {
  static constexpr int kQueries = Queries;    // rows of a query block,
  static constexpr int kStep = Step;          // of them at one time in registers
  static constexpr int kKeys = Keys;          // rows of a key block,
  static constexpr int kWarpKeys = WarpKeys;  // of them in one warp
  static constexpr int kSplit = Split;        // warps that share the columns of dk and dv
  static constexpr int kDqWarps = DqWarps;    // warps that share the columns of dq
  static constexpr int kBlocksPerSm = BlocksPerSm;
};

template <typename Dims>
struct Tuning;
// clang-format off
template <> struct Tuning<HeadDims<64, 64>> : BlockShape<64, 32, 128, 32, 1, 2, 2> {};
template <> struct Tuning<HeadDims<96, 96>> : BlockShape<64, 32, 128, 32, 2, 2, 1> {};
template <> struct Tuning<HeadDims<128, 128>> : BlockShape<64, 32, 128, 32, 2, 4, 1> {};
template <> struct Tuning<HeadDims<192, 128>> : BlockShape<64, 32, 128, 32, 2, 4, 1> {};
template <> struct Tuning<HeadDims<192, 192>> : BlockShape<64, 16, 64, 32, 4, 4, 1> {};
template <> struct Tuning<HeadDims<256, 256>> : BlockShape<64, 16, 64, 32, 4, 4, 1> {};

// The same key rows for GPUs with less shared memory than Hopper: 163 KB a block on sm_80, where it
// serves every head dimension; sm_86 and sm_89 have 99 KB, enough for 64 only. On the H200 these run
// at 0.84 of the others.
constexpr int kSmallSharedBytes = 163 << 10;
template <typename Dims>
struct SmallTuning;
template <> struct SmallTuning<HeadDims<128, 128>> : BlockShape<32, 16, 128, 32, 2, 4, 1> {};
template <> struct SmallTuning<HeadDims<192, 128>> : BlockShape<32, 16, 128, 32, 2, 4, 1> {};
template <> struct SmallTuning<HeadDims<192, 192>> : BlockShape<32, 16, 64, 16, 2, 4, 1> {};
template <> struct SmallTuning<HeadDims<256, 256>> : BlockShape<32, 16, 64, 16, 2, 4, 1> {};
// clang-format on

template <typename Element, typename Dims, typename Shape>
struct Config : Shape {
  using T = Element;
  using Shape::kKeys, Shape::kQueries, Shape::kSplit, Shape::kStep;
  static constexpr int kQk = Dims::kQk, kV = Dims::kV;
  static constexpr int kM = Shape::kWarpKeys / 16;  // fragments of 16 keys a warp
  static constexpr int kWarps = kKeys / Shape::kWarpKeys * kSplit, kThreads = 32 * kWarps;
  static constexpr int kDqM = kQueries * Shape::kDqWarps / kWarps / 16;
  static constexpr int kOwn = kQueries / kSplit;  // queries that a warp scores of a block

  // Shared memory: K and V, two stages of Q, dout and dS, one of P (split only), then per stage and
  // query lse, delta, and the keys it sees.
  using QkTile = SharedTile<kQk>;
  using VTile = SharedTile<kV>;
  using ScoreTile = SharedTile<kQueries>;  // [keys][queries]
  static constexpr int kQBytes = QkTile::bytes(kQueries), kDoutBytes = VTile::bytes(kQueries);
  static constexpr int kScoreBytes = ScoreTile::bytes(kKeys);
  static constexpr int kAtV = QkTile::bytes(kKeys), kAtQ = kAtV + VTile::bytes(kKeys);
  static constexpr int kAtDout = kAtQ + 2 * kQBytes, kAtDs = kAtDout + 2 * kDoutBytes;
  static constexpr int kAtP = kAtDs + 2 * kScoreBytes;
  static constexpr int kAtRows = kAtP + (kSplit == 1 ? 0 : kScoreBytes);
  static constexpr int kRowBytes = kQueries * 16, kAtFound = kAtRows + 2 * kRowBytes;
  static constexpr int kSharedBytes = kAtFound + 16;

  using Scores = Accumulator[kM][kStep / 8];
  using Weights = FragmentA[kStep / 16][kM];
  using Dk = Accumulator[kM][kQk / 8 / kSplit];
  using Dv = Accumulator[kM][kV / 8 / kSplit];
};

// What the scores of a query block need of its rows.
template <int Queries>
struct QueryRows {
  float lse[Queries], delta[Queries];
  int2 seen[Queries];  // first and number of the item's keys
};

// What an item has met that is not finite. In shared memory, as the hot loop has no register for
// it.
struct Found {
  int queries[2];  // of each stage, from then on
  int keys;

  __device__ static Found& in(uint8_t* shared, int at) {
    return *reinterpret_cast<Found*>(shared + at);
  }
  __device__ bool any() const { return (queries[0] | queries[1] | keys) != 0; }
};

struct QueryBlock {
  int64_t row = 0;  // of the resident buffer
  int rows = 0, head = 0;
  bool clear = false;
};

// Starts copying a query block; where it is not clear, each row asks the mask what it sees.
template <typename C>
__device__ QueryBlock load_queries(const BackwardParameters& arguments, const WorkItem& item,
                                   const QueryBlocks<C::kQueries>& at, uint8_t* shared, int stage) {
  using T = typename C::T;
  const AttentionShape& shape = arguments.shape;
  const bool all_keys = item.end - item.begin == C::kKeys;
  const QueryBlock block{int64_t{at.row} + at.begin, at.end - at.begin, at.head,
                         all_keys && at.is_clear()};
  const uint32_t base = shared_address(shared);
  load_tile<C::kQk, C::kQueries, C::kThreads>(
      base + C::kAtQ + stage * C::kQBytes, row_of<T>(arguments.q, block.row, block.head),
      arguments.q.row_stride, block.rows, shape.head_dim_qk);
  load_tile<C::kV, C::kQueries, C::kThreads>(
      base + C::kAtDout + stage * C::kDoutBytes, row_of<T>(arguments.dout, block.row, block.head),
      arguments.dout.row_stride, block.rows, shape.head_dim_v);

  const int i = threadIdx.x;
  if (i >= C::kQueries) return block;
  auto& rows = reinterpret_cast<QueryRows<C::kQueries>*>(shared + C::kAtRows)[stage];
  const int64_t row = block.row + i;
  copy_4_async(shared_address(&rows.lse[i]), &arguments.lse.of(row, block.head), i < block.rows);
  copy_4_async(shared_address(&rows.delta[i]), &arguments.delta.of(row, block.head),
               i < block.rows);
  if (block.clear) return block;
  const Segment q = arguments.keys.partners[at.partner];
  Interval seen =
      i < block.rows
          ? sequence_mask(arguments.keys, item).visible_rows(item.own, q.position(at.begin + i))
          : Interval{};
  seen.end = seen.end < item.end ? seen.end : item.end;
  rows.seen[i] = {seen.begin - item.begin, seen.end > seen.begin ? seen.size() : 0};
  return block;
}

// Hides what a query does not see: weights, [keys][queries], become -0, which no other one is.
template <typename C>
__device__ void hide_unseen_keys(typename C::Scores& weights, const QueryRows<C::kQueries>& rows,
                                 int query, int warp_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < C::kStep / 8; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int2 seen = rows.seen[query + 8 * n + lane % 4 * 2 + i];
#pragma unroll
      for (int m = 0; m < C::kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (unsigned(warp_key + 16 * m + 8 * half + lane / 4 - seen.x) >= unsigned(seen.y))
            weights[m][n][2 * half + i] = -0.0f;
    }
}

// Their gradients become 0, whatever delta and dout are: nobody has said that these are numbers.
template <typename C>
__device__ void hide_gradients(typename C::Scores& grads, const typename C::Scores& weights) {
#pragma unroll
  for (int m = 0; m < C::kM; ++m)
#pragma unroll
    for (int n = 0; n < C::kStep / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (__float_as_int(weights[m][n][i]) < 0) grads[m][n][i] = 0;
}

// scores become weights, exp(score - lse).
template <typename C>
__device__ void weigh(typename C::Scores& scores, const QueryRows<C::kQueries>& rows, int query,
                      float scale_log2) {
#pragma unroll
  for (int n = 0; n < C::kStep / 8; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Not below: a query that saw nothing but scores of -inf has that lse, and no -inf - -inf.
      const float lse = rows.lse[query + 8 * n + threadIdx.x % 4 * 2 + i];
      const float shift = max_or_nan(lse * kLog2E, -1e30f);
#pragma unroll
      for (int m = 0; m < C::kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& score = scores[m][n][2 * half + i];
          score = exp2_fast(fmaf(score, scale_log2, -shift));
        }
    }
}

// grads, d(weights), become d(scores) up to the softmax scale: weight * (grad - delta).
template <typename C>
__device__ void differentiate(typename C::Scores& grads, const typename C::Scores& weights,
                              const QueryRows<C::kQueries>& rows, int query) {
#pragma unroll
  for (int n = 0; n < C::kStep / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float delta = rows.delta[query + 8 * n + threadIdx.x % 4 * 2 + i % 2];
#pragma unroll
      for (int m = 0; m < C::kM; ++m) grads[m][n][i] = weights[m][n][i] * (grads[m][n][i] - delta);
    }
}

// Writes a warp's [keys][queries] to a shared tile.
template <typename C>
__device__ void store_scores(uint8_t* tile, const typename C::Weights& values, int warp_key,
                             int query) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < C::kStep / 16; ++k)
#pragma unroll
    for (int m = 0; m < C::kM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = warp_key + 16 * m + i % 2 * 8 + lane / 4;
        const int byte = 2 * (query + 16 * k + i / 2 * 8) + lane % 4 * 4;
        *reinterpret_cast<uint32_t*>(tile + C::ScoreTile::offset(row, byte)) = values[k][m][i];
      }
}

// dq += scale dS^T K for one query block; or dq is that, where the item is the only one it meets.
template <typename C, bool kAlone>
__device__ void add_dq(const BackwardParameters& arguments, const QueryBlock& block,
                       const Found& found, uint32_t ds_tile, uint32_t k_tile) {
  const int warp = threadIdx.x / 32, first_row = warp / C::kDqWarps * 16 * C::kDqM;
  const int first_column = Dealt<C::kQk, C::kDqWarps>::first_column(warp % C::kDqWarps);
  Accumulator dq[C::kDqM][C::kQk / 8 / C::kDqWarps];
  clear(dq);
  const uint32_t ds_lane = C::ScoreTile::lane_across(ds_tile, 0, first_row);
  const uint32_t k_lane = C::QkTile::lane_down(k_tile, 0, first_column);
  if (block.clear || found.keys == 0)
    multiply_transposed<typename C::T, C::kKeys, C::kQueries, C::kQk, C::kDqWarps>(dq, ds_lane,
                                                                                   k_lane);
  else
    multiply_finite<typename C::T, C::kKeys, C::kQueries, C::kQk, C::kDqWarps>(dq, ds_lane, k_lane);
  put_rows<typename C::T, C::kQk, C::kDqWarps>(
      kAlone ? Put::store_final : Put::add, arguments.dq, block.row, block.rows, block.head,
      arguments.shape.head_dim_qk, first_row, first_column, arguments.shape.softmax_scale, dq);
}

// Scores of one warp, its keys against kStep queries: weights and d(scores) as left operands.
template <typename C>
__device__ void score_step(typename C::Weights& p, typename C::Weights& ds, uint32_t shared_base,
                           const QueryRows<C::kQueries>& rows, int stage, int warp_key, int query,
                           bool clear_block, const AttentionShape& shape, float scale_log2) {
  using T = typename C::T;
  const uint32_t q_tile = shared_base + C::kAtQ + stage * C::kQBytes;
  const uint32_t dout_tile = shared_base + C::kAtDout + stage * C::kDoutBytes;
  typename C::Scores scores, grads;
  clear(scores);
  multiply_rows<T, C::kQk>(scores, C::QkTile::lane_down(shared_base, warp_key),
                           C::QkTile::lane_across(q_tile, query));
  apply_unfolded_scale(scores, shape);
  weigh<C>(scores, rows, query, scale_log2);
  if (!clear_block) hide_unseen_keys<C>(scores, rows, query, warp_key);
  clear(grads);
  multiply_rows<T, C::kV>(grads, C::VTile::lane_down(shared_base + C::kAtV, warp_key),
                          C::VTile::lane_across(dout_tile, query));
  differentiate<C>(grads, scores, rows, query);
  if (!clear_block) hide_gradients<C>(grads, scores);
  as_left_operand<T>(p, scores);
  as_left_operand<T>(ds, grads);
}

// Once all warps have scored `step`: puts 0 in the place of what is not finite in its rows.
template <typename C>
__device__ void drop_of_step(uint8_t* q_tile, uint8_t* dout_tile, int step) {
  const auto is_of_step = [&](int row) { return row % C::kOwn / C::kStep == step / C::kStep; };
  __syncthreads();
  drop_not_finite<typename C::T, C::kQk, C::kQueries, C::kThreads>(q_tile, is_of_step);
  drop_not_finite<typename C::T, C::kV, C::kQueries, C::kThreads>(dout_tile, is_of_step);
  __syncthreads();
}

template <typename C, bool kAlone>
__device__ __forceinline__ void differentiate_keys(const BackwardParameters& arguments, int index) {
  using T = typename C::T;
  using DkColumns = Dealt<C::kQk, C::kSplit>;
  using DvColumns = Dealt<C::kV, C::kSplit>;
  extern __shared__ __align__(128) uint8_t shared[];
  const WorkList& work = arguments.keys;
  const WorkItem& item = work.items[index];
  if (!is_item(work, item, index)) return;
  const AttentionShape& shape = arguments.shape;
  const int kv_head = blockIdx.y;
  const uint32_t base = shared_address(shared);
  const int64_t key_row = int64_t{item.own.row} + item.begin;
  load_tile<C::kQk, C::kKeys, C::kThreads>(base, row_of<T>(arguments.k, key_row, kv_head),
                                           arguments.k.row_stride, item.end - item.begin,
                                           shape.head_dim_qk);
  load_tile<C::kV, C::kKeys, C::kThreads>(base + C::kAtV, row_of<T>(arguments.v, key_row, kv_head),
                                          arguments.v.row_stride, item.end - item.begin,
                                          shape.head_dim_v);
  QueryBlocks<C::kQueries> next(work, item, query_heads_of(shape, kv_head));
  if (!next.valid()) return;
  QueryBlock coming = load_queries<C>(arguments, item, next, shared, 0), previous;

  const int warp = threadIdx.x / 32, part = warp % C::kSplit;
  const int warp_key = warp / C::kSplit * 16 * C::kM;
  const float scale_log2 = folded_scale(shape) * kLog2E;
  typename C::Dk dk;
  typename C::Dv dv;
  clear(dk), clear(dv);
  Found& found = Found::in(shared, C::kAtFound);
  if (threadIdx.x == 0) found = {};
  wait_for_copies();
  __syncthreads();
  if (!is_own_part_finite<T, C::kQk, C::kKeys, C::kThreads>(shared)) atomicOr(&found.keys, 1);
  for (int stage = 0; next.valid(); stage ^= 1) {
    const QueryBlock block = coming;
    next.advance(work, item);
    wait_for_copies();
    uint8_t* queries = shared + C::kAtQ + stage * C::kQBytes;
    uint8_t* douts = shared + C::kAtDout + stage * C::kDoutBytes;
    if (!block.clear && !(is_own_part_finite<T, C::kQk, C::kQueries, C::kThreads>(queries) &&
                          is_own_part_finite<T, C::kV, C::kQueries, C::kThreads>(douts)))
      atomicOr(&found.queries[stage], 1);
    __syncthreads();  // this query block is there; the one before is used up and its dS complete
    if (next.valid()) coming = load_queries<C>(arguments, item, next, shared, stage ^ 1);
    if (!arguments.deterministic && previous.rows > 0)
      add_dq<C, kAlone>(arguments, previous, found, base + C::kAtDs + (stage ^ 1) * C::kScoreBytes,
                        base);
    previous = block;

    const auto& rows = reinterpret_cast<QueryRows<C::kQueries>*>(shared + C::kAtRows)[stage];
    const uint32_t q_tile = base + C::kAtQ + stage * C::kQBytes;
    const uint32_t dout_tile = base + C::kAtDout + stage * C::kDoutBytes;
    uint8_t *ds_tile = shared + C::kAtDs + stage * C::kScoreBytes, *p_tile = shared + C::kAtP;
#pragma unroll
    for (int step = 0; step < C::kOwn; step += C::kStep) {
      const int query = part * C::kOwn + step;
      typename C::Weights p, ds;
      score_step<C>(p, ds, base, rows, stage, warp_key, query, block.clear, shape, scale_log2);
      store_scores<C>(ds_tile, ds, warp_key, query);
      if (C::kSplit > 1) store_scores<C>(p_tile, p, warp_key, query);
      if (!block.clear && found.queries[stage] != 0) drop_of_step<C>(queries, douts, step);
      multiply_columns<T, C::kV, C::kSplit>(
          dv, p, C::VTile::lane_down(dout_tile, query, DvColumns::first_column(part)));
      multiply_columns<T, C::kQk, C::kSplit>(
          dk, ds, C::QkTile::lane_down(q_tile, query, DkColumns::first_column(part)));
    }
    if (C::kSplit > 1) synchronize(1 + warp / C::kSplit, 32 * C::kSplit);
#pragma unroll
    for (int other = 1; other < C::kSplit; ++other) {  // what the warps of the same keys scored
      const int query = (part + other) % C::kSplit * C::kOwn;
      multiply_tiles<T, C::kQueries, C::kOwn, C::kV, C::kSplit>(
          dv, C::ScoreTile::lane_down(shared_address(p_tile), warp_key, query),
          C::VTile::lane_down(dout_tile, query, DvColumns::first_column(part)));
      multiply_tiles<T, C::kQueries, C::kOwn, C::kQk, C::kSplit>(
          dk, C::ScoreTile::lane_down(shared_address(ds_tile), warp_key, query),
          C::QkTile::lane_down(q_tile, query, DkColumns::first_column(part)));
    }
    if (!next.valid() && !arguments.deterministic) {  // nobody comes after
      __syncthreads();
      add_dq<C, kAlone>(arguments, block, found, shared_address(ds_tile), base);
    }
  }
  const int keys = item.end - item.begin;
  const bool goes_apart = leaves_final(item, arguments.final_dk.data != nullptr);
  const Put put = arguments.is_final || goes_apart ? Put::store_final
                  : arguments.is_first             ? Put::store
                                                   : Put::add;
  put_rows<T, C::kQk, C::kSplit>(put, goes_apart ? arguments.final_dk : arguments.dk, key_row, keys,
                                 kv_head, shape.head_dim_qk, warp_key,
                                 DkColumns::first_column(part), shape.softmax_scale, dk);
  put_rows<T, C::kV, C::kSplit>(put, goes_apart ? arguments.final_dv : arguments.dv, key_row, keys,
                                kv_head, shape.head_dim_v, warp_key, DvColumns::first_column(part),
                                1, dv);
  if (!found.any()) return;  // all or none of the threads
  __syncthreads();
  seen_pairs::add_queries<T, C::kQueries, C::kKeys>(arguments, item, kv_head);
  if (!arguments.deterministic)
    seen_pairs::add_own_keys<T, C::kQueries, C::kKeys>(arguments, item, kv_head);
}

template <typename C, Turns turns, bool kAlone>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    attention_backward_keys(const __grid_constant__ BackwardParameters arguments) {
  for_each_item<turns>(arguments.keys,
                       [&](int index) { differentiate_keys<C, kAlone>(arguments, index); });
}

template <typename C>
cudaError_t launch_keys(const BackwardArguments& arguments, cudaStream_t stream) {
  const auto run = [&](auto kernel, dim3 grid) {
    return launch_with_shared(kernel, grid, C::kThreads, C::kSharedBytes, stream,
                              BackwardParameters(arguments));
  };
  if (arguments.one_item_of_keys) {
    const dim3 grid(arguments.keys.max_items, arguments.shape.num_kv_heads);
    return run(attention_backward_keys<C, Turns::one, true>, grid);
  }
  return with_turns(arguments.keys, arguments.shape.num_kv_heads, [&](dim3 grid, auto turns) {
    return run(attention_backward_keys<C, turns, false>, grid);
  });
}

}  // namespace

int backward_key_rows(const AttentionShape& shape) {
  return with_head_dims(shape, [](auto dims) -> int { return Tuning<decltype(dims)>::kKeys; });
}

cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream) {
  if (arguments.accumulate == Accumulate::only && arguments.final_dk.data != nullptr)
    return cudaErrorInvalidValue;  // of two places
  if (arguments.dq_layout != AccumulatorLayout::rows) return cudaErrorInvalidValue;
  if (arguments.one_item_of_keys && arguments.accumulate != Accumulate::only)
    return cudaErrorInvalidValue;
  for (const DeviceMatrix& matrix :
       {arguments.q, arguments.k, arguments.v, arguments.dout, arguments.dq, arguments.dk,
        arguments.dv, arguments.final_dk, arguments.final_dv})
    if (!is_aligned(matrix)) return cudaErrorInvalidValue;
  int shared_bytes = 0, device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  error = with_element_type(arguments.shape.type, [&](auto element) {
    return with_head_dims(arguments.shape, [&](auto dims) {
      using Element = decltype(element);
      using Dims = decltype(dims);
      using Large = Config<Element, Dims, Tuning<Dims>>;
      if constexpr (Large::kSharedBytes > kSmallSharedBytes)
        if (shared_bytes < Large::kSharedBytes)
          return launch_keys<Config<Element, Dims, SmallTuning<Dims>>>(arguments, stream);
      return launch_keys<Large>(arguments, stream);
    });
  });
  if (error != cudaSuccess || !arguments.deterministic) return error;
  return backward_queries(arguments, stream);
}

}  // namespace ringside::mma
