// The instances of the forward kernel, as the host sees them.
#pragma once

#include "optimized/attention/hopper/forward/forward.cuh"

namespace ringside::hopper {

template <typename Dims, Options kOptions>
cudaError_t launch_forward(const Parameters<kOptions>& parameters, dim3 grid, cudaStream_t stream);

}  // namespace ringside::hopper
