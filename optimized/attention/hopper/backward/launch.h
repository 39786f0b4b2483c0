// The instances of the backward kernel, as the host sees them.
#pragma once

#include "optimized/attention/hopper/backward/shared/blocks.cuh"

namespace ringside::hopper::backward_detail {

template <typename Dims, Options kOptions>
cudaError_t launch_backward(const ParametersOf<kOptions>& parameters, Dq dq, dim3 grid,
                            cudaStream_t stream);

}  // namespace ringside::hopper::backward_detail
