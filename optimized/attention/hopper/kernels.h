// The Hopper family: bfloat16 and float16 by wgmma and bulk tensor copies, compute capability 9.0
// alone.
#pragma once

#include "optimized/attention/kernel.h"

namespace ringside::hopper {

// Head dimensions: multiples of 8 up to 256; shorter rows are padded with zeros in shared memory.
bool supports(const AttentionShape& shape, const DeviceProperties& device);
int forward_rows(const AttentionShape& shape);
int64_t forward_workspace_bytes(const AttentionShape& shape);

// Whether a launch asks for the kernel that knows options: for these, for sinks or max_logit, or by
// a scale that is not positive.
bool has_options(const ForwardArguments& arguments);

// Whether there are kernels with softcap, ALiBi and dropout, too: where no head dimension is above
// 128. Sinks, the largest score and any scale are known for all.
bool knows_options(const AttentionShape& shape);

// Whether this kernel takes a launch. The others, which no one launches often, are the mma
// family's, which knows no options: strides that no tensor map takes.
bool takes(const ForwardArguments& arguments);
// Of arguments that it takes.
cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream);

// Of items of keys: no more than the mma family's, which may be given them as well.
int backward_key_rows(const AttentionShape& shape);
// Of those that are all that their queries meet: as many blocks of keys, one after the other.
int backward_whole_key_rows(const AttentionShape& shape);
int backward_head_parts(const AttentionShape& shape);
// Key heads that a backward launch takes at a time: with one, processors idle at the end of each.
inline constexpr int kHeadsAtATime = 2;
int64_t backward_workspace_bytes(const AttentionShape& shape);
// Whether it takes one with `first_stored`.
bool first_may_store(const BackwardArguments& arguments);
// Whether it takes one with `dq_layout` of fragments.
bool in_fragments(const BackwardArguments& arguments);
// Whether items may add to dq in turn (BackwardArguments::turns).
bool takes_turns(const AttentionShape& shape);
// Whether the last to add may leave final ones (BackwardArguments::final_dq).
bool rounds_in_turn(const AttentionShape& shape);
// Likewise; dq of the deterministic mode without turns is another kernel's: the mma family's, or
// the one below.
bool takes(const BackwardArguments& arguments);
cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream);

// dq of the deterministic mode without turns, with score options.
cudaError_t backward_queries_with_options(const BackwardArguments& arguments, cudaStream_t stream);

}  // namespace ringside::hopper
