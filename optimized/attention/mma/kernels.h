// The mma.sync family: bfloat16 and float16 on the tensor cores of any GPU since sm_80.
#pragma once

#include "optimized/attention/kernel.h"

namespace ringside::mma {

// Head dimensions: multiples of 8 up to 256.
bool supports(const AttentionShape& shape, const DeviceProperties& device);
int forward_rows(const AttentionShape& shape);
int backward_query_rows(const AttentionShape& shape);
int backward_key_rows(const AttentionShape& shape);

// Arguments as kernels take them. What they ask about results is a byte that is 0 or 1: asked for
// an enumerator instead, the compiler deals the registers of the hot loops anew.
struct ForwardParameters : ForwardArguments {
  bool out_in_tiles, is_final;

  explicit ForwardParameters(const ForwardArguments& arguments)
      : ForwardArguments(arguments),
        out_in_tiles(layout == AccumulatorLayout::tiles),
        is_final(accumulate == Accumulate::only) {}
};

struct BackwardParameters : BackwardArguments {
  bool is_first, is_final;

  explicit BackwardParameters(const BackwardArguments& arguments)
      : BackwardArguments(arguments),
        is_first(accumulate == Accumulate::start),
        is_final(accumulate == Accumulate::only) {}
};

// Rows and heads of every operand must begin at multiples of 16 bytes: cudaErrorInvalidValue
// otherwise.
cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream);
cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream);
// dq alone, from scratch: what deterministic mode adds to the backward. The Hopper family has it
// from here.
cudaError_t backward_queries(const BackwardArguments& arguments, cudaStream_t stream);

}  // namespace ringside::mma
