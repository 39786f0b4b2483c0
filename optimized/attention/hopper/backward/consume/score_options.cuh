// Score options in the backward kernel: from the products of a block, [keys][queries], to weights
// and d(scores).
#pragma once

#include "optimized/attention/hopper/backward/consume/tile.cuh"

namespace ringside::hopper::backward_detail {

// Which of a thread's weights dropout keeps, a bit each. Four neighbouring keys share a counter and
// lie in four lanes: each draws for a quarter of their queries, and has what is its own of the
// others'.
__device__ __forceinline__ uint32_t draw_kept(const ScoreNumbers& n, const ScorePlace& at,
                                              uint32_t head, int first_key, uint32_t thread) {
  const Place place(thread);
  if (at.shares_counters()) {
    const uint32_t lane = thread % 32, mine = lane / 4 % 4;
    const uint32_t four_keys = (at.k + first_key + place.row - mine) / 4;
    uint32_t drawn = 0;  // a byte for each of the four
#pragma unroll
    for (int bit = 0; bit < 8; ++bit) {
      const int query = 8 * (2 * mine + bit / 4) + place.column + bit % 2;
      uint32_t word[4];
      draw(n, at.seq, head, at.q + at.q_stride * query, four_keys + bit / 2 % 2 * 2, word);
#pragma unroll
      for (int key = 0; key < 4; ++key)
        if (word[key] > n.last_dropped) drawn |= 1u << (8 * key + bit);
    }
    uint32_t kept = 0;
#pragma unroll
    for (int from = 0; from < 4; ++from) {
      const uint32_t theirs = __shfl_sync(~0u, drawn, lane / 16 * 16 + from * 4 + lane % 4);
      kept |= (theirs >> 8 * mine & 0xff) << 8 * from;
    }
    return kept;
  }
  uint32_t kept = 0;
#pragma unroll 1
  for (int i = 0; i < 32; ++i) {
    const int query = i / 4 * 8 + place.column + i % 2, key = first_key + place.row + i / 2 % 2 * 8;
    const bool keeps =
        keeps_pair(n, at.seq, head, at.q + at.q_stride * query, at.k + at.k_stride * key);
    kept |= (keeps ? 1u : 0u) << i;
  }
  return kept;
}

// scores become weights as they meet dout, grads d(scores) up to the softmax scale. Pairs that are
// not seen have none of either.
template <bool kClear>
__device__ __forceinline__ void differentiate(float (&scores)[32], float (&grads)[32],
                                              const QueryRows& rows, const SeenKeysOfRows& seen,
                                              const ScoreNumbers& n, const ScorePlace& at, int head,
                                              int first_key, uint32_t thread) {
  const Place place(thread);
  const uint32_t global_head = n.first_head + head;
  const uint32_t kept = n.drops ? draw_kept(n, at, global_head, first_key, thread) : ~0u;
  const float slope = n.alibi_slopes != nullptr ? n.alibi_slopes[global_head] * kLog2E : 0;
  const bool bends = n.softcap != 0;
  const float scale = bends ? n.far.cap : n.scale_log2;
  const float distance =
      at.distance + at.q_step * place.column - at.k_step * (first_key + place.row);
#pragma unroll
  for (int m = 0; m < 8; ++m) {
    const float2 shifts = *reinterpret_cast<const float2*>(&rows.shift[8 * m + place.column]);
    const float2 minus = *reinterpret_cast<const float2*>(&rows.minus_delta[8 * m + place.column]);
    uchar4 of_two = {};
    if constexpr (!kClear)
      of_two = *reinterpret_cast<const uchar4*>(&seen.of[8 * m + place.column]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at_i = 4 * m + i;
      float x = scores[at_i], change = 1;
      if (bends) {
        x = bend(x, n.far.power);
        change = fmaf(-x, x, 1);
      }
      const float d = fmaf(at.k_step, -8 * (i / 2), fmaf(at.q_step, 8 * m + i % 2, distance));
      const float bias = fmaf(slope, fabsf(d), i % 2 == 0 ? shifts.x : shifts.y);
      const float weight = exp2_fast(fmaf(x, scale, -bias));
      const float factor = kept >> at_i & 1 ? n.kept_factor : 0;
      const float grad = fmaf(grads[at_i], factor, i % 2 == 0 ? minus.x : minus.y);
      scores[at_i] = weight * factor;
      grads[at_i] = weight * grad * change;
      if constexpr (!kClear) {
        const uchar2 of_row = i % 2 == 0 ? uchar2{of_two.x, of_two.y} : uchar2{of_two.z, of_two.w};
        if (unsigned(first_key + place.row + 8 * (i / 2) - of_row.x) >= unsigned(of_row.y))
          scores[at_i] = grads[at_i] = 0;
      }
    }
  }
}

}  // namespace ringside::hopper::backward_detail
