// The Hopper family: bfloat16 and float16 by wgmma and bulk tensor copies, compute capability 9.0
// alone.
#pragma once

#include "optimized/attention/kernel.h"

namespace ringside::hopper {

// Head dimensions: multiples of 8, the larger one above 64 and up to 128; shorter rows are padded
// with zeros in shared memory.
bool supports(const AttentionShape& shape, const DeviceProperties& device);
int forward_rows(const AttentionShape& shape);
int64_t forward_workspace_bytes(const AttentionShape& shape);
// Whether the kernel that knows options runs: of these, or of scales that are not positive.
bool has_options(const ForwardArguments& arguments);

// Whether this kernel takes a launch. The others, which no one launches often, are the mma
// family's: strides that no tensor map takes. It knows no options.
bool takes(const ForwardArguments& arguments);
// Of arguments that it takes.
cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream);

int backward_key_rows(const AttentionShape& shape);
int64_t backward_workspace_bytes(const AttentionShape& shape);
// Likewise; dq of the deterministic mode is always the mma family's.
bool takes(const BackwardArguments& arguments);
cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream);

// dq of the deterministic mode, with score options.
cudaError_t backward_queries_with_options(const BackwardArguments& arguments, cudaStream_t stream);

}  // namespace ringside::hopper
