#include "optimized/attention/hopper/forward/kernel.cuh"

namespace ringside::hopper {

template cudaError_t launch_forward<HeadDims<192, 192>, Options::none>(const ForwardParameters&,
                                                                       dim3, cudaStream_t);

}  // namespace ringside::hopper
