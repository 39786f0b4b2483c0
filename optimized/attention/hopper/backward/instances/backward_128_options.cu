#include "optimized/attention/hopper/backward/kernel.cuh"

namespace ringside::hopper::backward_detail {

template cudaError_t launch_backward<HeadDims<128, 128>, Options::all>(const OptionParameters&, Dq,
                                                                       dim3, cudaStream_t);

}  // namespace ringside::hopper::backward_detail
