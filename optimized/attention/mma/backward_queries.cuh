// The second kernel of the deterministic backward on the tensor cores: dq alone.
//
// Query blocks outside, as in the forward: each warp owns 16 rows, keeps their dq in registers and
// walks over the key blocks that the item sees. Scores and their gradient are computed once more (7
// products instead of 5), which costs less than ordering the sums of many blocks, and needs no
// workspace.
#pragma once

#include "optimized/attention/mma/common.cuh"

namespace ringside::mma {
inline constexpr int kQueryRows = 64;

template <typename Element, typename Dims>
struct QueriesConfig {
  using T = Element;
  static constexpr int kQk = Dims::kQk, kV = Dims::kV, kThreads = kQueryRows / 16 * 32;
  static constexpr int kKeys = kQk > 192 ? 32 : 64;
  static constexpr int kDoutAt = SharedTile<kQk>::bytes(kQueryRows);
  static constexpr int kKAt = kDoutAt + SharedTile<kV>::bytes(kQueryRows),
                       kKBytes = SharedTile<kQk>::bytes(kKeys);
  static constexpr int kVAt = kKAt + 2 * kKBytes, kVBytes = SharedTile<kV>::bytes(kKeys);
  static constexpr int kSharedBytes = kVAt + 2 * kVBytes;
};

template <typename C>
__device__ void load_keys(const BackwardParameters& arguments, const KeyBlocks<C::kKeys>& at,
                          int kv_head, uint32_t base, int stage) {
  using T = typename C::T;
  const int64_t row = int64_t{at.row} + at.begin;
  load_tile<C::kQk, C::kKeys, C::kThreads>(
      base + C::kKAt + stage * C::kKBytes, row_of<T>(arguments.k, row, kv_head),
      arguments.k.row_stride, at.end - at.begin, arguments.shape.head_dim_qk);
  load_tile<C::kV, C::kKeys, C::kThreads>(
      base + C::kVAt + stage * C::kVBytes, row_of<T>(arguments.v, row, kv_head),
      arguments.v.row_stride, at.end - at.begin, arguments.shape.head_dim_v);
}

template <typename C, typename Parameters>
__device__ __forceinline__ void differentiate_queries(const Parameters& arguments, int index) {
  using T = typename C::T;
  using QkTile = SharedTile<C::kQk>;
  using VTile = SharedTile<C::kV>;
  extern __shared__ __align__(128) uint8_t shared[];
  const WorkList& work = arguments.queries;
  const WorkItem& item = work.items[index];
  if (!is_item(work, item, index)) return;
  const AttentionShape& shape = arguments.shape;
  const int head = blockIdx.y, kv_head = kv_head_of(shape, head);
  KeyBlocks<C::kKeys> next(work, item);
  if (!next.valid()) return;

  const uint32_t base = shared_address(shared);
  const int64_t first_row = int64_t{item.own.row} + item.begin;
  load_tile<C::kQk, kQueryRows, C::kThreads>(base, row_of<T>(arguments.q, first_row, head),
                                             arguments.q.row_stride, item.end - item.begin,
                                             shape.head_dim_qk);
  load_tile<C::kV, kQueryRows, C::kThreads>(
      base + C::kDoutAt, row_of<T>(arguments.dout, first_row, head), arguments.dout.row_stride,
      item.end - item.begin, shape.head_dim_v);
  load_keys<C>(arguments, next, kv_head, base, 0);

  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const float scale_log2 = folded_scale(shape) * kLog2E;
  float shift[2] = {}, delta[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = item.begin + warp_row + 8 * half + lane / 4;
    if (row >= item.end) continue;
    const float lse = arguments.lse.of(item.own.row + row, head);
    shift[half] = max_or_nan(lse * kLog2E, -1e30f);  // of scores of -inf, no -inf - -inf
    delta[half] = arguments.delta.of(item.own.row + row, head);
  }

  Accumulator dq[1][C::kQk / 8];
  clear(dq);
  bool drops = false;  // keys that are not finite, and some row does not see
  for (int stage = 0; next.valid(); stage ^= 1) {
    const int begin = next.begin, partner = next.partner;
    const bool all_seen = next.is_clear();
    next.advance(work, item);
    wait_for_copies();
    uint8_t* keys = shared + C::kKAt + stage * C::kKBytes;
    const bool whole = all_seen || is_own_part_finite<T, C::kQk, C::kKeys, C::kThreads>(keys);
    const bool all_whole = __syncthreads_and(whole);  // this block is there, the one before used up
    if (next.valid()) load_keys<C>(arguments, next, kv_head, base, stage ^ 1);

    const uint32_t k_tile = base + C::kKAt + stage * C::kKBytes;
    const uint32_t v_tile = base + C::kVAt + stage * C::kVBytes;
    Accumulator scores[1][C::kKeys / 8], grads[1][C::kKeys / 8];
    clear(scores), clear(grads);
    multiply_rows<T, C::kQk>(scores, QkTile::lane_down(base, warp_row),
                             QkTile::lane_across(k_tile));
    multiply_rows<T, C::kV>(grads, VTile::lane_down(base + C::kDoutAt, warp_row),
                            VTile::lane_across(v_tile));
    if constexpr (requires { arguments.scores; }) {
      arguments.differentiate(scores, grads, shift, delta, item, partner, begin, warp_row, head);
    } else {
      apply_unfolded_scale(scores, shape);
#pragma unroll
      for (int n = 0; n < C::kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          grads[0][n][i] = exp2_fast(fmaf(scores[0][n][i], scale_log2, -shift[i / 2])) *
                           (grads[0][n][i] - delta[i / 2]);
    }
    if (!all_seen) hide_unseen(grads, 0, work, item, partner, begin, warp_row);
    if (!all_whole) {
      __syncthreads();  // scores are there
      drop_not_finite<T, C::kQk, C::kKeys, C::kThreads>(keys, [](int) { return true; });
      drops = true;
      __syncthreads();
    }
    FragmentA ds[C::kKeys / 16][1];
    as_left_operand<T>(ds, grads);
    multiply_columns<T, C::kQk, 1>(dq, ds, QkTile::lane_down(k_tile));
  }
  put_rows<T, C::kQk, 1>(arguments.is_final ? Put::store_final : Put::add, arguments.dq, first_row,
                         item.end - item.begin, head, shape.head_dim_qk, warp_row, 0,
                         shape.softmax_scale, dq);
  if (!drops) return;  // all or none of the threads
  __syncthreads();
  seen_pairs::add_keys < T, C::kKeys, requires { arguments.scores; }
  > (arguments, item, head);
}

template <typename C, Turns turns, typename Parameters>
__global__ void __launch_bounds__(C::kThreads, 2)
    attention_backward_queries(const __grid_constant__ Parameters arguments) {
  for_each_item<turns>(arguments.queries,
                       [&](int index) { differentiate_queries<C>(arguments, index); });
}

}  // namespace ringside::mma
