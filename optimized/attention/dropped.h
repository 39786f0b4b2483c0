// For kernels that leave it to a second launch to add what they have dropped (seen_pairs.cuh): they
// set a word, in the caller's memory, where they have dropped something.
#pragma once

#include "optimized/attention/kernel.h"

namespace ringside {

// Rows of the blocks that such kernels ask the mask for; columns of dq that are left out together.
inline constexpr int kDroppedKeys = 128, kDroppedQueries = 64, kDroppedColumns = 64;

// What dropped values add to out.
cudaError_t add_dropped(const ForwardArguments& arguments, const int32_t* dropped,
                        cudaStream_t stream);
// What dropped queries and their dout add to dk and dv; and dq of blocks that are not clear, in
// columns where a key of the item is not finite: there it holds nothing of the item. item_keys: of
// a whole item; 128, with up to 128 columns of a key, or 64.
cudaError_t add_dropped(const BackwardArguments& arguments, int item_keys, const int32_t* dropped,
                        cudaStream_t stream);

}  // namespace ringside
