#include "optimized/attention/hopper/forward/kernel.cuh"

namespace ringside::hopper {

template cudaError_t launch_forward<HeadDims<64, 64>, Options::linear>(const OptionParameters&,
                                                                       dim3, cudaStream_t);

}  // namespace ringside::hopper
