// The caller's arrays, as kernels take them where they lie.
#pragma once

#include "optimized/program/program.h"

namespace ringside {

// The call, whose arrays have strides of their own where there is one row or head, which those of
// the caller then do not matter for. Raises InvalidArgument where the family takes no such array.
ForwardCall as_taken(ForwardCall call, const KernelFamily& family);
BackwardCall as_taken(BackwardCall call, const KernelFamily& family);

}  // namespace ringside
