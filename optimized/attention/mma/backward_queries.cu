#include "optimized/attention/mma/backward_queries.cuh"

namespace ringside::mma {

int backward_query_rows(const AttentionShape&) { return kQueryRows; }

cudaError_t backward_queries(const BackwardArguments& arguments, cudaStream_t stream) {
  return with_element_type(arguments.shape.type, [&](auto element) {
    return with_head_dims(arguments.shape, [&](auto dims) {
      using C = QueriesConfig<decltype(element), decltype(dims)>;
      return with_turns(arguments.queries, arguments.shape.num_heads, [&](dim3 grid, auto turns) {
        return launch_with_shared(attention_backward_queries<C, turns, BackwardParameters>, grid,
                                  C::kThreads, C::kSharedBytes, stream,
                                  BackwardParameters(arguments));
      });
    });
  });
}

}  // namespace ringside::mma
