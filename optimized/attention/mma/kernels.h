// The mma.sync family: bfloat16 and float16 on the tensor cores of any GPU since sm_80.
#pragma once

#include "optimized/attention/kernel.h"

namespace ringside::mma {

bool supports(const AttentionShape& shape);  // head dimensions: multiples of 8 up to 256
int forward_rows(const AttentionShape& shape);
int backward_query_rows(const AttentionShape& shape);
int backward_key_rows(const AttentionShape& shape);

// Rows and heads of every operand must begin at multiples of 16 bytes: cudaErrorInvalidValue
// otherwise.
cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream);
cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream);

}  // namespace ringside::mma
