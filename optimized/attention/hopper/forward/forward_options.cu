// The forward kernel with score options.
#include "optimized/attention/hopper/forward/kernel.cuh"

namespace ringside::hopper {

cudaError_t launch_with_options(const OptionParameters& parameters, dim3 grid,
                                cudaStream_t stream) {
  return launch_forward<true>(parameters, grid, stream);
}

}  // namespace ringside::hopper
