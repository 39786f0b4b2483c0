// The backward kernel with score options.
#include "optimized/attention/hopper/backward/kernel.cuh"

namespace ringside::hopper::backward_detail {

cudaError_t launch_with_options(const OptionParameters& parameters, Dq dq, dim3 grid,
                                cudaStream_t stream) {
  return launch<true>(parameters, dq, grid, stream);
}

}  // namespace ringside::hopper::backward_detail
