// The softmax of scores beside a low softcap, where nothing else happens to them. All are bent by
// quotients, whatever they are, to logits so close to 0 that weights need no largest one to be
// relative to: no row is asked for its own, nor raised, nor its output rescaled.
#pragma once

#include "optimized/attention/hopper/forward/bent_softmax.cuh"

namespace ringside::hopper {

// Weights are exp2(bent): `top` is 0.
struct LowCapSoftmax : BentSoftmax {
  using BentSoftmax::BentSoftmax;
  __device__ __forceinline__ void start() {
    top[0] = top[1] = sum[0] = sum[1] = 0;
    start_highest();
  }
  // Rows that earlier launches have seen go on from 0, too: their output is to be multiplied by
  // `factor`, as the sum is. Where they saw something under this cap, their lse is not below minus
  // the cap; where nothing, it is -inf.
  __device__ __forceinline__ void start_from_zero(float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = exp2_fast(top[half]);
      sum[half] *= factor[half];
      top[half] = 0;
    }
  }

  // Clips what is too large. Of words of numbers with signs, the largest is that of the largest
  // number, if it is above zero, or of one that is none.
  template <int kScores>
  __device__ __forceinline__ bool look(float (&scores)[kScores], float (&)[2],
                                       const ScoreNumbers& n, bool, const SeenKeys&) {
    if (n.max_logit != nullptr) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        highest[half] = fmaxf(highest[half], row_top(scores, half));
    }
    int32_t largest[4] = {};
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i)
      largest[i % 4] = max(max(largest[i % 4], __float_as_int(scores[2 * i])),
                           __float_as_int(scores[2 * i + 1]));
    const int32_t of_all = max(max(largest[0], largest[1]), max(largest[2], largest[3]));
    if (__any_sync(~0u, of_all > __float_as_int(n.far.most))) clip_scores(scores, n.far.most);
    return false;
  }

  // Turns q.k that have been looked at into weights. What is hidden, -inf, is bent to minus the
  // cap, and hidden again.
  template <int kScores>
  __device__ __forceinline__ void weigh(float (&scores)[kScores], const ScoreNumbers& n,
                                        bool is_masked, const SeenKeys& seen) {
#pragma unroll
    for (int half = 0; half < 2; ++half) bend_far(scores, half, n.far, n.far.cap);
    if (is_masked) {
#pragma unroll
      for (int half = 0; half < 2; ++half) seen.hide_unseen(scores, half);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) take_exponentials(scores, half);
  }
};

}  // namespace ringside::hopper
