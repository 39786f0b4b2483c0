// The online softmax of scores that a softcap bends, where nothing else happens to them. Bending
// keeps the order of scores: a row's largest is found as without a cap, and what bends a score
// takes it from the largest one, too.
#pragma once

#include "optimized/attention/hopper/forward/bent_softmax.cuh"

namespace ringside::hopper {

// Scores are q.k, of a positive scale; `top` is a bent one, a logit to base 2.
struct CappedSoftmax : BentSoftmax {
  float outgrown[2];  // q.k: what is not above it by 2^kSlack has not outgrown `top` by as much

  using BentSoftmax::BentSoftmax;
  __device__ __forceinline__ void start() {
    OnlineSoftmax::start();
    start_highest();
  }
  // Also of a row that earlier launches have seen: of its scores so far nothing is known.
  __device__ __forceinline__ void start_highest() {
    BentSoftmax::start_highest();
    outgrown[0] = outgrown[1] = -INFINITY;
  }

  // What weights are relative to, and how scores are bent; true and `factor` as of OnlineSoftmax's
  // update. A bent score is no further from another one than before: but for rounding no more than
  // `kSlack` above `top` if it was not.
  template <int kScores>
  __device__ __forceinline__ bool look(float (&scores)[kScores], float (&factor)[2],
                                       const ScoreNumbers& n, bool is_masked,
                                       const SeenKeys& seen) {
    float of_lane[2], of_other[2], block_top[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      of_lane[half] = row_top(scores, half);
      highest[half] = fmaxf(highest[half], of_lane[half]);
      of_other[half] = __shfl_xor_sync(~0u, of_lane[half], 1);
    }
    look_at_rows(scores, of_lane, n.near, is_masked, seen);  // while lanes exchange
    bool outgrown = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_two = fmaxf(of_lane[half], of_other[half]);
      block_top[half] = fmaxf(of_two, __shfl_xor_sync(~0u, of_two, 2));
      outgrown |= outgrows(block_top[half], half, n) || block_top[half] > n.far.most;
    }
    const bool raises = __any_sync(~0u, outgrown);
    if (raises) {
      raise(block_top, factor, n);
      if (__any_sync(~0u, fmaxf(block_top[0], block_top[1]) > n.far.most))
        clip_scores(scores, n.far.most);
    }
    return raises;
  }

  // Turns q.k that have been looked at into weights exp2(bent - top).
  template <int kScores>
  __device__ __forceinline__ void weigh(float (&scores)[kScores], const ScoreNumbers& n,
                                        bool is_masked, const SeenKeys& seen) {
    // `top` of a row that has seen nothing is that of -inf, minus the cap.
    weigh_bent(scores, n, top, is_masked, seen);
  }

 private:
  // Also where both are the same infinity.
  __device__ __forceinline__ bool outgrows(float score, int half, const ScoreNumbers& n) const {
    return !((score - outgrown[half]) * n.scale_log2 <= kSlack);
  }

  __device__ __forceinline__ void raise(const float (&block_top)[2], float (&factor)[2],
                                        const ScoreNumbers& n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float new_top = bent(block_top[half], n);
      const bool rises = outgrows(block_top[half], half, n);
      // The lse of earlier launches may be above. Where a row sees nothing here, it stays.
      const bool is_higher =
          rises && new_top > top[half] && (block_top[half] != -INFINITY || top[half] == -INFINITY);
      factor[half] = is_higher ? exp2_fast(top[half] - new_top) : 1;
      if (rises) outgrown[half] = block_top[half];
      if (is_higher) top[half] = new_top;
      sum[half] *= factor[half];
    }
  }
};

}  // namespace ringside::hopper
