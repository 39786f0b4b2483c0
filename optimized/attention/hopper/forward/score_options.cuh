// Score options in the forward kernel: what a group does to the scores of a block, [rows][keys].
#pragma once

#include "optimized/attention/hopper/forward/capped_softmax.cuh"
#include "optimized/attention/hopper/forward/forward.cuh"
#include "optimized/attention/hopper/forward/low_cap_softmax.cuh"
#include "optimized/attention/hopper/forward/softmax.cuh"
#include "optimized/attention/hopper/score_policy.cuh"

namespace ringside::hopper {

// The softmax, with the largest score of a lane's columns and rows.
struct SoftmaxWithHighest : OnlineSoftmax {
  float highest[2];

  using OnlineSoftmax::OnlineSoftmax;
  __device__ __forceinline__ void start() {
    OnlineSoftmax::start();
    start_highest();
  }
  __device__ __forceinline__ void start_highest() { highest[0] = highest[1] = -INFINITY; }
  __device__ __forceinline__ float highest_logit(int half, const ScoreNumbers&) const {
    return highest[half];
  }
  template <int kScores>
  __device__ __forceinline__ bool update(float (&scores)[kScores], float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      highest[half] = fmaxf(highest[half], row_top(scores, half));
    return OnlineSoftmax::update(scores, factor);
  }
};
template <Options kOptions>
using Softmax =
    std::conditional_t<kOptions == Options::none, OnlineSoftmax,
                       std::conditional_t<kOptions == Options::softcap, CappedSoftmax,
                                          std::conditional_t<kOptions == Options::low_softcap,
                                                             LowCapSoftmax, SoftmaxWithHighest>>>;

// Of a lane: its first row in the item, and which keys, 8n + column and the next.
struct LanePlace {
  int row, column;

  __device__ explicit LanePlace(int group) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    row = group * kGroupRows + thread / 32 * 16 + thread % 32 / 4;
    column = thread % 4 * 2;
  }
};

// q.k become bent logits to base 2. What becomes of a score depends on nothing else; a warp asks
// the unit of exponents where one of its scores is not near.
template <int kScores>
__device__ __forceinline__ void bend_scores(float (&scores)[kScores], const ScoreNumbers& n) {
  constexpr int kBatch = 8, kBatches = kScores / kBatch;
  uint32_t near = 0;  // batches all of whose scores are, the first one's bit in front
  float beyond[kBatch], factors[kBatch];
#pragma unroll
  for (int first = 0; first < kScores; first += kBatch) {
    float* batch = scores + first;
    n.near.find_factors(batch, beyond, factors);
    int signs = ~0;
#pragma unroll
    for (const float number : beyond) signs &= __float_as_int(number);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) multiply_if_negative(signs, batch[i], factors[i]);
    near = __funnelshift_l(signs, near, 1);
  }
  if (!__any_sync(~0u, near != (1u << kBatches) - 1)) return;
#pragma unroll
  for (int first = 0; first < kScores; first += kBatch) {
    float* batch = scores + first;
    n.near.find_factors(batch, beyond, factors);
    const int is_done = near << (32 - kBatches + first / kBatch);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const float bent = if_negative(__float_as_int(beyond[i]), batch[i] * factors[i],
                                     bend(batch[i], n.far.power, n.far.cap));
      batch[i] = if_negative(is_done, batch[i], bent);
    }
  }
}

// q.k become logits to base 2, where they are to before the softmax.
template <Options kOptions, int kKeys>
__device__ __forceinline__ void become_logits(float (&scores)[kKeys / 2], const ScoreNumbers& n,
                                              const ScorePlace& at, int head, int group) {
  if constexpr (kOptions == Options::dropout) return;
  if (!n.in_logits) return;
  float scale = n.scale_log2;
  if constexpr (kKnows<kOptions, Options::softcap>) {
    if (n.softcap != 0) {
      bend_scores(scores, n);
      scale = 1;
      if (n.alibi_slopes == nullptr) return;
    }
  }
  if (n.alibi_slopes == nullptr) {
#pragma unroll
    for (float& score : scores) score *= scale;
    return;
  }
  const float slope = n.alibi_slopes[n.first_head + head] * kLog2E;
  const LanePlace lane(group);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float distance =
        at.distance + at.q_step * (lane.row + 8 * half) - at.k_step * lane.column;
#pragma unroll
    for (int m = 0; m < kKeys / 8; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[4 * m + 2 * half + i];
        score = fmaf(score, scale, -slope * fabsf(fmaf(at.k_step, -(8 * m + i), distance)));
      }
  }
}

// Of an instance that knows dropout.
template <Options kOptions>
__device__ __forceinline__ bool drops(const ScoreNumbers& n) {
  return kOptions == Options::dropout || n.drops;
}

// Which of a lane's weights dropout keeps: of each of its rows, bit 2n + i is key 8n + column + i.
struct Kept {
  uint32_t of_row[2] = {~0u, ~0u};
};

// Lanes 2c and 2c + 1 hold four neighbouring keys, of which a counter tells: the even one asks for
// the first row, the odd one for the second, and they swap what is the other's.
template <int kKeys>
__device__ __forceinline__ void draw_kept(Kept& kept, const ScoreNumbers& n, const ScorePlace& at,
                                          int head, int group) {
  const LanePlace lane(group);
  const uint32_t global_head = n.first_head + head;
  if (at.shares_counters()) {
    const bool odd = lane.column & 2;
    const uint32_t q = at.q + at.q_stride * (lane.row + (odd ? 8 : 0));
    const uint32_t four_keys = static_cast<uint32_t>(at.k) / 4 + lane.column / 4;
    constexpr int kTogether = 4;  // counters
    uint32_t left = 0, right = 0;
#pragma unroll 1
    for (int m = kKeys / 8 - kTogether; m >= 0; m -= kTogether) {
      uint32_t words[kTogether][4];
      draw(n, at.seq, global_head, q, four_keys + 2 * m, 2, words);
      left <<= 2 * kTogether, right <<= 2 * kTogether;
#pragma unroll
      for (int bit = 0; bit < 2 * kTogether; ++bit) {
        set_if_above(left, 1u << bit, words[bit / 2][bit % 2], n.last_dropped);
        set_if_above(right, 1u << bit, words[bit / 2][2 + bit % 2], n.last_dropped);
      }
    }
    const uint32_t swapped = __shfl_xor_sync(~0u, odd ? left : right, 1);
    kept.of_row[0] = odd ? swapped : left;
    kept.of_row[1] = odd ? right : swapped;
    return;
  }
  kept.of_row[0] = kept.of_row[1] = 0;
#pragma unroll 1
  for (int pair = 0; pair < kKeys / 2; ++pair) {
    const int half = pair % 2, key = pair / 4 * 8 + pair / 2 % 2;
    const bool keeps =
        keeps_pair(n, at.seq, global_head, at.q + at.q_stride * (lane.row + 8 * half),
                   at.k + at.k_stride * (key + lane.column));
    const uint32_t bit = (keeps ? 1u : 0u) << pair / 2;
    if (half == 0)
      kept.of_row[0] |= bit;
    else
      kept.of_row[1] |= bit;
  }
}

// Infinite weights that are dropped become NaN, as all of their row does in the end.
template <int kKeys>
__device__ __forceinline__ void drop(float (&weights)[kKeys / 2], const Kept& kept) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int m = 0; m < kKeys / 8; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        zero_unless(kept.of_row[half], 1u << (2 * m + i), weights[4 * m + 2 * half + i]);
}

}  // namespace ringside::hopper
