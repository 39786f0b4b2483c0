// How a group of the forward kernel begins and ends an item: rows that an earlier launch has seen
// go on from their float32 accumulators; results go back there, or out in the operands' type.
#pragma once

#include <type_traits>

#include "optimized/attention/hopper/forward/forward.cuh"
#include "optimized/attention/hopper/forward/score_options.cuh"
#include "optimized/attention/hopper/machine/bulk_tensor.h"
#include "optimized/tables/accumulator_tiles.h"
#include "optimized/tables/ordered_float.h"
#include "reference/attention/partial.h"

namespace ringside::hopper {

template <typename Shape>
using Output = float[Shape::kV / 2];  // of a lane

// A positive softmax scale is folded into the exponent, behind the running maximum; no other one
// comes here without options.
__device__ inline float folded_scale(const ForwardParameters& p) { return p.shape.softmax_scale; }
__device__ inline float folded_scale(const OptionParameters& p) { return p.scores.unit; }

// A lane's two rows of an item: `first` of the buffer, and the one 8 behind it.
struct LaneRows {
  int first, left;  // rows of the item from the first on

  __device__ LaneRows(const BlockNote& note, int group) {
    const int thread = threadIdx.x % kThreadsOfGroup;
    const int row = group * kGroupRows + thread / 32 * 16 + thread % 32 / 4;
    first = note.row + row, left = note.rows - row;
  }
  __device__ bool has(int index) const { return 8 * index < left; }
};

// visit(two accumulators, index of a lane's row, n) for the rows that are wanted, and the groups n
// of 8 columns that a row has.
template <typename Shape, typename Visit>
__device__ __forceinline__ void for_each_accumulator(const ForwardParameters& p,
                                                     const LaneRows& rows, const bool (&wanted)[2],
                                                     int head, Visit visit) {
  const int heads = p.shape.num_heads, dim = p.shape.head_dim_v;
  const int column = threadIdx.x % 4 * 2;
  const auto visit_rows = [&](float* begin, auto of_group) {
    constexpr int kStep = decltype(of_group)::value;  // from a group to the next
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* row = begin + 8 * i * p.out.row_stride;
      if (!wanted[i]) continue;
#pragma unroll
      for (int n = 0; n < Shape::kV / 8; ++n)
        if (8 * n < dim) visit(reinterpret_cast<float2&>(row[n * kStep]), i, n);
    }
  };
  float* begin = static_cast<float*>(p.out.data);
  if (p.out_in_tiles)
    visit_rows(begin + tiled_offset(rows.first, head, column, heads, dim),
               std::integral_constant<int, kTileCells>());
  else
    visit_rows(begin + rows.first * p.out.row_stride + head * p.out.head_stride + column,
               std::integral_constant<int, 8>());
}

// Rows as earlier launches left them: normalised output, and lse; (0, -inf) saw nothing. The
// softmax goes on as if a first key had had that score and that value. In float16 its weight is not
// 1 but 2^kSlack, as large as weights become: later ones, a key among all before it, are far
// smaller, and where a row has seen 10,000 keys they would lose digits. bfloat16 loses none.
template <typename T, typename Shape, Options kOptions>
__device__ __forceinline__ void resume(const Parameters<kOptions>& p, const LaneRows& rows,
                                       int head, OnlineSoftmax& softmax, Output<Shape>& output) {
  constexpr int kPower = std::is_same_v<T, __half> ? OnlineSoftmax::kSlack : 0;
  constexpr float kWeight = 1 << kPower;
  const float unfolded = 1 / folded_scale(p);
  float weight = kWeight;
  if constexpr (kOptions != Options::none) weight /= p.scores.kept_factor;
  bool there[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    there[i] = rows.has(i);
    const float lse = there[i] ? p.lse.of(rows.first + 8 * i, head) : -INFINITY;
    softmax.top[i] = (lse - kPower / kLog2E) * unfolded;
    softmax.sum[i] = lse != -INFINITY && threadIdx.x % 4 == 0 ? kWeight : 0;
  }
  for_each_accumulator<Shape>(p, rows, there, head, [&](const float2& from, int i, int n) {
    const float2 two = __ldcg(&from);
    output[4 * n + 2 * i] = weight * two.x, output[4 * n + 2 * i + 1] = weight * two.y;
  });
}

// Final results of a warp through shared memory of its own, in T: warps do not wait for each other.
// Rows behind the item's last are dropped on the way.
template <typename T, typename Shape>
__device__ __forceinline__ void store_final(const ForwardParameters& p, ForwardShared<Shape>& s,
                                            const BlockNote& note, int group,
                                            const float (&factor)[2], const Output<Shape>& output) {
  const int warp = threadIdx.x % kThreadsOfGroup / 32, lane = threadIdx.x % 32;
  const uint32_t tile = shared_address(s.out[group]) + warp * kRowsOfWarp * kSwizzledBytes;
  const int first = group * kGroupRows + warp * kRowsOfWarp;  // of the item
  const int row = lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
  for (int begin = 0; begin < Shape::kV; begin += Shape::kStagedColumns) {
    if (lane == 0) wait_until_read<0>();  // of the columns, or the item, before
    __syncwarp();
#pragma unroll
    for (int n = 0; n < Shape::kStagedColumns / 8; n += 2) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* two = output + begin / 2 + 4 * n + 2 * i;
        packed[i] = pack<T>(factor[i % 2] * two[0], factor[i % 2] * two[1]);
      }
      const uint32_t panel = tile + n * 8 / kPanelColumns * kBoxBytes;
      store_matrices<false>(panel + swizzled(row, n % 8 + lane / 16), packed[0], packed[1],
                            packed[2], packed[3]);
    }
    show_to_async();
    __syncwarp();
    if (lane != 0 || first >= note.rows) continue;
    for (int at = 0; at < Shape::kStagedColumns; at += kPanelColumns)
      store_box(p.maps.out, ragged_box(begin + at, note.head, note.row + first, note.rows - first),
                tile + at / kPanelColumns * kBoxBytes);
    commit_stores();
  }
}

// What options do to a row: dropout's factor, and a sink, which final results have merged.
__device__ __forceinline__ void finish_row(const ScoreNumbers& n, int head, float sum,
                                           float& factor, float& lse) {
  if (n.drops) factor *= sum == INFINITY ? NAN : n.kept_factor;  // infinite weights, dropped or not
  if (n.sinks == nullptr) return;
  const auto merged = merge_weights(lse, n.sinks[n.first_head + head]);
  factor *= merged.a, lse = merged.lse;
}

// With the largest score of a warp's rows, or NaN, as then a sum is.
template <typename AnySoftmax>
__device__ __forceinline__ void raise_max_logit(const ScoreNumbers& n, int head,
                                                const AnySoftmax& softmax,
                                                const bool (&is_row)[2]) {
  if (n.max_logit == nullptr) return;
  float highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (is_row[i]) {
      const float of_row = softmax.highest_logit(i, n) * n.unit;
      highest = larger(highest, isnan(softmax.sum[i]) ? softmax.sum[i] : of_row);
    }
  for (int lanes = 16; lanes > 0; lanes /= 2)
    highest = larger(highest, __shfl_xor_sync(~0u, highest, lanes));
  if (threadIdx.x % 32 == 0 && highest != -INFINITY)
    atomicMax(n.max_logit + n.first_head + head, ordered_key(highest));
}

// Writes a group's rows: final ones in T, others in float32. Where nothing was seen but scores of
// -inf they are zeros, or NaN where a value was not finite.
template <typename T, typename Shape, Options kOptions>
__device__ __forceinline__ void finish(const Parameters<kOptions>& p, ForwardShared<Shape>& s,
                                       const BlockNote& note, int group,
                                       const Softmax<kOptions>& softmax,
                                       const Output<Shape>& output) {
  const LaneRows rows(note, group);
  float factor[2], lse[2];
  bool writes[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sum = quad_sum(softmax.sum[i]);
    factor[i] = sum != 0 ? __fdividef(1, sum) : 0;
    writes[i] = rows.has(i);
    lse[i] = softmax.top[i] * folded_scale(p) + log_fast(sum);
    if constexpr (kOptions != Options::none)
      finish_row(p.scores, note.head, sum, factor[i], lse[i]);
  }
  if constexpr (kOptions != Options::none) raise_max_logit(p.scores, note.head, softmax, writes);
  if (note.flags & kFinal) {
    store_final<T, Shape>(p, s, note, group, factor, output);
  } else {
    for_each_accumulator<Shape>(p, rows, writes, note.head, [&](float2& to, int i, int n) {
      const float* two = output + 4 * n + 2 * i;
      __stcg(&to, float2{factor[i] * two[0], factor[i] * two[1]});
    });
  }
  // Last: the fence of results would wait for it.
  if (threadIdx.x % 4 != 0) return;
  float* to = &p.lse.of(rows.first, note.head);
  if (writes[0]) *to = lse[0];
  if (writes[1]) to[8 * p.lse.row_stride] = lse[1];
}

}  // namespace ringside::hopper
