// dq of the deterministic mode with score options: the mma family's kernel, for the head dimensions
// of this one.
#include "optimized/attention/hopper/head_dims.h"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/score_policy.cuh"
#include "optimized/attention/mma/backward_queries.cuh"

namespace ringside::hopper {
namespace {

struct QueryParameters : mma::BackwardParameters {
  ScoreNumbers scores;

  // Of a warp's rows: grads become d(scores) up to the softmax scale.
  template <int N>
  __device__ __forceinline__ void differentiate(const mma::Accumulator (&products)[1][N],
                                                mma::Accumulator (&grads)[1][N],
                                                const float (&shift)[2], const float (&deltas)[2],
                                                const WorkItem& item, int partner, int begin,
                                                int warp_row, int head) const {
    const int lane = threadIdx.x % 32, global_head = scores.first_head + head;
    const int row = warp_row + lane / 4, column = lane % 4 * 2;
    const ScorePlace at(scores, sequence_mask(queries, item), item.own, item.begin,
                        queries.partners[partner], begin);
    const float slope =
        scores.alibi_slopes != nullptr ? scores.alibi_slopes[global_head] * kLog2E : 0;
    const float scale = scores.softcap != 0 ? scores.far.cap : scores.scale_log2;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2, query = row + 8 * half, key = 8 * n + column + i % 2;
        float x = products[0][n][i], change = 1, factor = 1;
        if (scores.softcap != 0) {
          x = bend(x, scores.far.power);
          change = fmaf(-x, x, 1);
        }
        const float d = at.distance + at.q_step * query - at.k_step * key;
        const float weight = exp2_fast(fmaf(x, scale, -fmaf(slope, fabsf(d), shift[half])));
        if (scores.drops)
          factor = keeps_pair(scores, at.seq, global_head, at.q + at.q_stride * query,
                              at.k + at.k_stride * key)
                       ? scores.kept_factor
                       : 0;
        grads[0][n][i] = weight * change * fmaf(grads[0][n][i], factor, -deltas[half]);
      }
  }
};

}  // namespace

cudaError_t backward_queries_with_options(const BackwardArguments& a, cudaStream_t stream) {
  return mma::with_element_type(a.shape.type, [&](auto element) {
    using C = mma::QueriesConfig<decltype(element), mma::HeadDims<OptionDims::kQk, OptionDims::kV>>;
    return mma::with_turns(a.queries, a.shape.num_heads, [&](dim3 grid, auto turns) {
      return launch_with_shared(
          mma::attention_backward_queries<C, turns, QueryParameters>, grid, C::kThreads,
          C::kSharedBytes, stream,
          QueryParameters{mma::BackwardParameters(a), score_numbers(a.shape, a.options)});
    });
  });
}

}  // namespace ringside::hopper
