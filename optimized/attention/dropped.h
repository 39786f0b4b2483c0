// For kernels that leave it to a second launch to add what they have dropped (seen_pairs.cuh): they
// set a word, in the caller's memory, where they have dropped something.
#pragma once

#include "optimized/attention/kernel.h"

namespace ringside {

// Rows of the blocks that such kernels ask the mask for.
inline constexpr int kDroppedKeys = 128, kDroppedQueries = 64;

// What dropped values add to out.
cudaError_t add_dropped(const ForwardArguments& arguments, const int32_t* dropped,
                        cudaStream_t stream);
// What dropped queries and their dout add to dk and dv, and dropped keys to dq, unless these are
// another kernel's. item_keys: of a whole item; 128, without options or with, or 64.
cudaError_t add_dropped(const BackwardArguments& arguments, int item_keys, const int32_t* dropped,
                        cudaStream_t stream);

}  // namespace ringside
