// Scores that a softcap bends, and nothing else happens to, in the backward kernel: as in the
// forward softmax, a factor bends those that are small beside the cap.
#pragma once

#include "optimized/attention/hopper/backward/consume/tile.cuh"

namespace ringside::hopper::backward_detail {

// Whether all of a warp's are. What is not a number counts as near, and stays what it is.
__device__ __forceinline__ bool all_near(const float (&scores)[32], const NearSoftcap& near) {
  float largest[2] = {};
#pragma unroll
  for (int i = 0; i < 32; ++i) largest[i % 2] = fmaxf(largest[i % 2], fabsf(scores[i]));
  return __all_sync(~0u, near.has(fmaxf(largest[0], largest[1])));
}

// q.k become weights, and d(weights) less delta become d(scores) up to the softmax scale, also
// of pairs that are not seen. What becomes of a pair depends on nothing else: kNear spares what is
// asked of none. shift_of(m): of two queries' exponents.
template <bool kNear, typename ShiftOf>
__device__ __forceinline__ void differentiate_capped(float (&scores)[32], float (&grads)[32],
                                                     const ScoreNumbers& n, ShiftOf shift_of) {
  constexpr int kBatch = kNear ? 4 : 2;
#pragma unroll
  for (int first = 0; first < 32; first += kBatch) {
    const float2 shift = shift_of(first / 4);
    float beyond[kBatch], factors[kBatch], tanhs[kBatch], logits[kBatch];
    n.near.find_factors(&scores[first], beyond, factors);
    bool far = false;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      logits[i] = __fmul_rn(scores[first + i], factors[i]);  // here as where others are far
      tanhs[i] = logits[i] * n.near.per_logit;
      far |= !(beyond[i] < 0);
    }
    if (!kNear && __any_sync(~0u, far))
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int sign = __float_as_int(beyond[i]);
        const float tanh = bend(scores[first + i], n.far.power);
        tanhs[i] = if_negative(sign, tanhs[i], tanh);
        logits[i] = if_negative(sign, logits[i], tanh * n.far.cap);
      }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      float &score = scores[first + i], &grad = grads[first + i];
      grad *= fmaf(-tanhs[i], tanhs[i], 1);
      score = exp2_fast(logits[i] - (i % 2 == 0 ? shift.x : shift.y));
      grad *= score;
    }
  }
}
// rows: what they keep of the queries is asked for again where there are no registers for `shifts`.
__device__ __forceinline__ void differentiate_capped(float (&scores)[32], float (&grads)[32],
                                                     const float2 (&shifts)[8],
                                                     const QueryRows& rows, const ScoreNumbers& n,
                                                     uint32_t thread) {
  if (all_near(scores, n.near))
    return differentiate_capped<true>(scores, grads, n, [&](int m) { return shifts[m]; });
  differentiate_capped<false>(scores, grads, n, [&](int m) {
    float2 two[1];
    load_of_queries(two, rows.shift, thread, 8 * m);
    return two[0];
  });
}

}  // namespace ringside::hopper::backward_detail
