// The softmax of scores beside a low softcap, where nothing else happens to them. They are bent to
// logits so close to 0 that weights need no largest one to be relative to: no row is asked for its
// own, nor raised, nor its output rescaled.
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

  // How scores are bent, and clips what is too large.
  template <int kScores>
  __device__ __forceinline__ bool look(float (&scores)[kScores], float (&)[2],
                                       const ScoreNumbers& n, bool is_masked,
                                       const SeenKeys& seen) {
    if (n.max_logit != nullptr) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        highest[half] = fmaxf(highest[half], row_top(scores, half));
    }
    const int32_t words[2] = {largest_word<int32_t>(scores, 0), largest_word<int32_t>(scores, 1)};
    look_at_rows(scores, {__int_as_float(words[0]), __int_as_float(words[1])}, n.near, is_masked,
                 seen);
    if (__any_sync(~0u, max(words[0], words[1]) > __float_as_int(n.far.most)))
      clip_scores(scores, n.far.most);
    return false;
  }

  // Turns q.k that have been looked at into weights.
  template <int kScores>
  __device__ __forceinline__ void weigh(float (&scores)[kScores], const ScoreNumbers& n,
                                        bool is_masked, const SeenKeys& seen) {
    weigh_bent(scores, n, {0, 0}, is_masked, seen);
  }
};

}  // namespace ringside::hopper
