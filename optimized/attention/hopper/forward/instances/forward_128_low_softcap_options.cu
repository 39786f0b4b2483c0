#include "optimized/attention/hopper/forward/kernel.cuh"

namespace ringside::hopper {

template cudaError_t launch_forward<HeadDims<128, 128>, Options::low_softcap>(
    const OptionParameters&, dim3, cudaStream_t);

}  // namespace ringside::hopper
