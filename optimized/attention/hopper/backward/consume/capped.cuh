// Scores that a softcap bends, and nothing else happens to, in the backward kernel: they become
// logits while products with dout are under way. As in the forward softmax, a factor bends those
// that are small beside the cap, an exponent and a quotient all others.
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

// So many q.k at a time become logits to base 2, as there are registers for, also of pairs that are
// not seen. What becomes of one depends on no other.
inline constexpr int kBentAtOnce = 8;
__device__ __forceinline__ void bend_near(float* scores, const NearSoftcap& near) {
  float beyond[kBentAtOnce], factors[kBentAtOnce];
  near.find_factors(scores, beyond, factors);
#pragma unroll
  for (int i = 0; i < kBentAtOnce; ++i) scores[i] = __fmul_rn(scores[i], factors[i]);  // as below
}
__device__ __forceinline__ void bend_far(float* scores, const FarSoftcap& far) {
#pragma unroll
  for (int i = 0; i < kBentAtOnce; ++i) scores[i] = bend(scores[i], far.power, far.cap);
}
__device__ __forceinline__ void bend_any(float* scores, const ScoreNumbers& n) {
  float beyond[kBentAtOnce], near[kBentAtOnce];
  n.near.find_factors(scores, beyond, near);
#pragma unroll
  for (int i = 0; i < kBentAtOnce; ++i) near[i] = __fmul_rn(scores[i], near[i]);
  bend_far(scores, n.far);
#pragma unroll
  for (int i = 0; i < kBentAtOnce; ++i)
    scores[i] = if_negative(__float_as_int(beyond[i]), near[i], scores[i]);
}
__device__ __forceinline__ void bend_scores(float (&scores)[32], const ScoreNumbers& n) {
  const auto bend_all = [&](auto of_some) {
#pragma unroll
    for (int first = 0; first < 32; first += kBentAtOnce) of_some(&scores[first]);
  };
  if (!(n.near.squared > 0))
    bend_all([&](float* some) { bend_far(some, n.far); });
  else if (all_near(scores, n.near))
    bend_all([&](float* some) { bend_near(some, n.near); });
  else
    bend_all([&](float* some) { bend_any(some, n); });
}

// Bent scores become weights, and d(weights) less delta become d(scores) up to the softmax scale.
__device__ __forceinline__ void differentiate_bent(float (&scores)[32], float (&grads)[32],
                                                   const float2 (&shifts)[8],
                                                   const NearSoftcap& near) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const float tanh = scores[i] * near.per_logit;
    const float2& shift = shifts[i / 4];
    scores[i] = exp2_fast(scores[i] - (i % 2 == 0 ? shift.x : shift.y));
    grads[i] *= __saturatef(fmaf(-tanh, tanh, 1));  // tanh may be above 1 by a last place
    grads[i] *= scores[i];
  }
}

}  // namespace ringside::hopper::backward_detail
