#include "optimized/attention/hopper/backward/kernel.cuh"

namespace ringside::hopper::backward_detail {

template cudaError_t launch_backward<HeadDims<192, 192>, Options::none>(const Parameters&, Dq, dim3,
                                                                        cudaStream_t);

}  // namespace ringside::hopper::backward_detail
