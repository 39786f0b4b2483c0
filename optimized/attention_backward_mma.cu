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
// What ideas brought, in TFLOP/s of visible pairs (H200, 2026-11-21, bfloat16, 2 x 16k causal with
// 16 heads at d128 or 32 at d64; "tail": 21 documents of one 32k pack, causal). FlashAttention 2
// (torch varlen_attn) ran at 305 and 264 beside.
//
//   16 keys a warp, weights never in shared memory: its reads took 78 % of their ceiling   d128 263
//     -> 32 keys a warp, two warps share the columns of dk and dv                          d128 279
//     -> each uses its own scores from registers before it waits for the other's           d128 288
//   the same with four warps at d192 and d256                      tail 197 -> 210 and 203 -> 216
//   the same with two warps at d192/128                                            tail 233 -> 253
//   d64, nothing shared: 32 keys a warp and 32 queries at a time                            d64 304
//     with 64 queries at a time; with 16 keys a warp: worse, not kept                 d64 239; 227
//   dq of the block before computed behind the scores, not in front: worse, not kept       d128 281
//   query rows in closed form; dk and dv added without reading back    2k x16 full d128 226 -> 251
//   dk and dv stored by the first launch, not added   a ring of 4, 16 x 4k causal 11.7 -> 11.2 ms
#include "optimized/attention_mma.cuh"

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
  static_assert(kSplit == 1 || kOwn == kStep);

  // Shared memory: K and V, two stages of Q, dout and dS, one of P (split only), then per stage and
  // query lse, delta, and the keys it sees.
  using QkTile = Tile<kQk>;
  using VTile = Tile<kV>;
  using ScoreTile = Tile<kQueries>;  // [keys][queries]
  static constexpr int kQBytes = QkTile::bytes(kQueries), kDoutBytes = VTile::bytes(kQueries);
  static constexpr int kScoreBytes = ScoreTile::bytes(kKeys);
  static constexpr int kAtV = QkTile::bytes(kKeys), kAtQ = kAtV + VTile::bytes(kKeys);
  static constexpr int kAtDout = kAtQ + 2 * kQBytes, kAtDs = kAtDout + 2 * kDoutBytes;
  static constexpr int kAtP = kAtDs + 2 * kScoreBytes;
  static constexpr int kAtRows = kAtP + (kSplit == 1 ? 0 : kScoreBytes);
  static constexpr int kRowBytes = kQueries * 16, kSharedBytes = kAtRows + 2 * kRowBytes;

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

struct QueryBlock {
  int64_t row = 0;  // of the resident buffer
  int rows = 0, head = 0;
  bool clear = false;
};

// Starts copying a query block; where it is not clear, each row asks the mask what it sees.
template <typename C>
__device__ QueryBlock load_queries(const BackwardArguments& arguments, const WorkItem& item,
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
  const int64_t entry = (block.row + i) * shape.num_heads + block.head;
  copy_4_async(shared_address(&rows.lse[i]), arguments.lse + entry, i < block.rows);
  copy_4_async(shared_address(&rows.delta[i]), arguments.delta + entry, i < block.rows);
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

// Empties what a query does not see; weights and their gradients are [keys][queries].
template <typename C>
__device__ void clear_unseen_keys(typename C::Scores& weights, typename C::Scores& grads,
                                  const QueryRows<C::kQueries>& rows, int query, int warp_key) {
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
            weights[m][n][2 * half + i] = grads[m][n][2 * half + i] = 0;
    }
}

// scores become weights, exp(score - lse).
template <typename C>
__device__ void weigh(typename C::Scores& scores, const QueryRows<C::kQueries>& rows, int query,
                      float scale_log2) {
#pragma unroll
  for (int n = 0; n < C::kStep / 8; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Not below: where lse is -inf, all scores are too, and weights 0.
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

// Which pairs of a block are seen, of keys of a warp or of queries of a warp.
template <typename C>
struct SeenPairs {
  const QueryRows<C::kQueries>& rows;

  __device__ bool operator()(int key, int query) const {
    const int2 seen = rows.seen[query];
    return unsigned(key - seen.x) < unsigned(seen.y);
  }
};

// dq += scale dS^T K for one query block, or dq is that; given the rows of a block of which some
// pairs are hidden, for seen pairs only.
template <typename C>
__device__ __forceinline__ void add_dq(Put put, const BackwardArguments& arguments,
                                       const QueryBlock& block, uint32_t ds_tile, uint32_t k_tile,
                                       const QueryRows<C::kQueries>* hiding = nullptr) {
  const int warp = threadIdx.x / 32, first_row = warp / C::kDqWarps * 16 * C::kDqM;
  const int first_column = Dealt<C::kQk, C::kDqWarps>::first_column(warp % C::kDqWarps);
  Accumulator dq[C::kDqM][C::kQk / 8 / C::kDqWarps];
  clear(dq);
  const uint32_t ds_lane = C::ScoreTile::lane_across(ds_tile, 0, first_row);
  if (hiding != nullptr)
    multiply_seen_transposed<typename C::T, C::kKeys, C::kQueries, C::kQk, C::kDqWarps>(
        dq, ds_lane, {k_tile, 0, first_column},
        [&](int row, int key) { return SeenPairs<C>{*hiding}(key, first_row + row); });
  else
    multiply_transposed<typename C::T, C::kKeys, C::kQueries, C::kQk, C::kDqWarps>(
        dq, ds_lane, C::QkTile::lane_down(k_tile, 0, first_column));
  put_rows<typename C::T, C::kQk, C::kDqWarps>(put, arguments.dq, block.row, block.rows, block.head,
                                               arguments.shape.head_dim_qk, first_row, first_column,
                                               arguments.shape.softmax_scale, dq);
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
  clear(grads);
  multiply_rows<T, C::kV>(grads, C::VTile::lane_down(shared_base + C::kAtV, warp_key),
                          C::VTile::lane_across(dout_tile, query));
  differentiate<C>(grads, scores, rows, query);
  if (!clear_block) clear_unseen_keys<C>(scores, grads, rows, query, warp_key);
  as_left_operand<T>(p, scores);
  as_left_operand<T>(ds, grads);
}

// dv += P dout and dk += dS q of a warp, the pairs that are seen of its keys and of what one warp
// has scored in a step.
template <typename C>
__device__ void add_seen_dv(typename C::Dv& dv, const uint8_t* p_tile, uint32_t dout_tile,
                            const QueryRows<C::kQueries>& rows, int warp_key, int query, int part) {
  multiply_seen_tiles<typename C::T, C::kQueries, C::kStep, C::kV, C::kSplit>(
      dv, C::ScoreTile::lane_down(shared_address(p_tile), warp_key, query),
      {dout_tile, query, Dealt<C::kV, C::kSplit>::first_column(part)},
      [&](int key, int i) { return SeenPairs<C>{rows}(warp_key + key, query + i); });
}

template <typename C>
__device__ void add_seen_dk(typename C::Dk& dk, const uint8_t* ds_tile, uint32_t q_tile,
                            const QueryRows<C::kQueries>& rows, int warp_key, int query, int part) {
  multiply_seen_tiles<typename C::T, C::kQueries, C::kStep, C::kQk, C::kSplit>(
      dk, C::ScoreTile::lane_down(shared_address(ds_tile), warp_key, query),
      {q_tile, query, Dealt<C::kQk, C::kSplit>::first_column(part)},
      [&](int key, int i) { return SeenPairs<C>{rows}(warp_key + key, query + i); });
}

// What of an item is to be computed again, carefully.
enum class Again { nothing, dk_and_dv, everything };

// One item. Weights of 0 hide finite values only. Infinite or NaN keys would reach the dq of
// queries that do not see them, which is added at once: such an item is `kCareful` from the start.
// Queries and their dout would reach dk and dv, which are looked at before they are written: where
// one is infinite or NaN, both are computed again.
template <typename C, bool kAlone, bool kCareful>
__device__ __forceinline__ Again differentiate_keys(const BackwardArguments& arguments, int index,
                                                    bool adds_dq) {
  using T = typename C::T;
  using DkColumns = Dealt<C::kQk, C::kSplit>;
  using DvColumns = Dealt<C::kV, C::kSplit>;
  extern __shared__ __align__(128) uint8_t shared[];
  const WorkList& work = arguments.keys;
  const WorkItem& item = work.items[index];
  if (!is_item(work, item, index)) return Again::nothing;
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
  if (!next.valid()) return Again::nothing;
  QueryBlock coming = load_queries<C>(arguments, item, next, shared, 0), previous;

  const int warp = threadIdx.x / 32, part = warp % C::kSplit;
  const int warp_key = warp / C::kSplit * 16 * C::kM;
  const float scale_log2 = folded_scale(shape) * kLog2E;
  typename C::Dk dk;
  typename C::Dv dv;
  clear(dk), clear(dv);
  const bool is_alone = kCareful ? arguments.is_alone : kAlone;
  const Put put_of_dq = is_alone ? Put::store_final : Put::add;
  if (!kCareful && adds_dq) {
    wait_for_copies();
    if (__syncthreads_or(copied_wild<T, C::kQk, C::kKeys, C::kThreads>(base)))
      return Again::everything;
  }
  for (int stage = 0; next.valid(); stage ^= 1) {
    const QueryBlock block = coming;
    next.advance(work, item);
    wait_for_copies();
    __syncthreads();  // this query block is there; the one before is used up and its dS complete
    if (next.valid()) coming = load_queries<C>(arguments, item, next, shared, stage ^ 1);
    if (adds_dq && previous.rows > 0)
      add_dq<C>(put_of_dq, arguments, previous, base + C::kAtDs + (stage ^ 1) * C::kScoreBytes,
                base);
    previous = block;

    const auto& rows = reinterpret_cast<QueryRows<C::kQueries>*>(shared + C::kAtRows)[stage];
    const uint32_t q_tile = base + C::kAtQ + stage * C::kQBytes;
    const uint32_t dout_tile = base + C::kAtDout + stage * C::kDoutBytes;
    uint8_t *ds_tile = shared + C::kAtDs + stage * C::kScoreBytes, *p_tile = shared + C::kAtP;
    const bool is_careful = kCareful && !block.clear;
#pragma unroll
    for (int step = 0; step < C::kOwn; step += C::kStep) {
      const int query = part * C::kOwn + step;
      typename C::Weights p, ds;
      score_step<C>(p, ds, base, rows, stage, warp_key, query, block.clear, shape, scale_log2);
      if (C::kSplit == 1 && is_careful) {  // p lies in the place of ds for a while
        store_scores<C>(ds_tile, p, warp_key, query);
        __syncwarp();
        add_seen_dv<C>(dv, ds_tile, dout_tile, rows, warp_key, query, part);
        __syncwarp();
        store_scores<C>(ds_tile, ds, warp_key, query);
        __syncwarp();
        add_seen_dk<C>(dk, ds_tile, q_tile, rows, warp_key, query, part);
        continue;
      }
      store_scores<C>(ds_tile, ds, warp_key, query);
      if (C::kSplit > 1) store_scores<C>(p_tile, p, warp_key, query);
      if (is_careful) continue;
      multiply_columns<T, C::kV, C::kSplit>(
          dv, p, C::VTile::lane_down(dout_tile, query, DvColumns::first_column(part)));
      multiply_columns<T, C::kQk, C::kSplit>(
          dk, ds, C::QkTile::lane_down(q_tile, query, DkColumns::first_column(part)));
    }
    if (C::kSplit > 1) synchronize(1 + warp / C::kSplit, 32 * C::kSplit);
    if (C::kSplit > 1 && is_careful) {
#pragma unroll 1
      for (int other = 0; other < C::kSplit; ++other) {
        const int query = (part + other) % C::kSplit * C::kOwn;
        add_seen_dv<C>(dv, p_tile, dout_tile, rows, warp_key, query, part);
        add_seen_dk<C>(dk, ds_tile, q_tile, rows, warp_key, query, part);
      }
    } else {
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
    }
    if (is_careful) {
      __syncthreads();
      if (adds_dq) add_dq<C>(put_of_dq, arguments, block, shared_address(ds_tile), base, &rows);
      previous.rows = 0;
    } else if (!next.valid() && adds_dq) {  // nobody comes after
      __syncthreads();
      add_dq<C>(put_of_dq, arguments, block, shared_address(ds_tile), base);
    }
  }
  if (!kCareful && __syncthreads_or(is_wild(dk) | is_wild(dv))) return Again::dk_and_dv;
  const int keys = item.end - item.begin;
  const Put put = arguments.is_final   ? Put::store_final
                  : arguments.is_first ? Put::store
                                       : Put::add;
  put_rows<T, C::kQk, C::kSplit>(put, arguments.dk, key_row, keys, kv_head, shape.head_dim_qk,
                                 warp_key, DkColumns::first_column(part), shape.softmax_scale, dk);
  put_rows<T, C::kV, C::kSplit>(put, arguments.dv, key_row, keys, kv_head, shape.head_dim_v,
                                warp_key, DvColumns::first_column(part), 1, dv);
  return Again::nothing;
}

// Apart, with registers of its own: what it needs must cost the other nothing.
template <typename C>
__device__ __noinline__ void differentiate_carefully(const BackwardArguments& arguments, int index,
                                                     bool adds_dq) {
  __syncthreads();  // all that the other way has loaded is used up
  differentiate_keys<C, false, true>(arguments, index, adds_dq);
}

template <typename C, Turns turns, bool kAlone>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    attention_backward_keys(const __grid_constant__ BackwardArguments arguments) {
  for_each_item<turns>(arguments.keys, [&](int index) {
    const bool adds_dq = !arguments.deterministic;
    const Again again = differentiate_keys<C, kAlone, false>(arguments, index, adds_dq);
    if (again != Again::nothing)
      differentiate_carefully<C>(arguments, index, adds_dq && again == Again::everything);
  });
}

template <typename C>
cudaError_t launch_keys(const BackwardArguments& arguments, cudaStream_t stream) {
  const auto run = [&](auto kernel, dim3 grid) {
    return launch(kernel, grid, C::kThreads, C::kSharedBytes, stream, arguments);
  };
  if (arguments.is_alone) {
    if (!arguments.keys.is_full) return cudaErrorInvalidValue;  // the host cannot know it
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
  for (const DeviceMatrix& matrix : {arguments.q, arguments.k, arguments.v, arguments.dout,
                                     arguments.dq, arguments.dk, arguments.dv})
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
