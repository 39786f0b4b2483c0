// One level's table. Its name has C linkage: the one symbol by which a level's object is reached.
#include "reference/attention/cpu_kernels.h"

namespace ringside {
namespace RINGSIDE_CPU_LEVEL {
void tile_forward(const TileTask& task, const ForwardBuffers& x);
void tile_backward(const TileTask& task, const BackwardBuffers& x);
}  // namespace RINGSIDE_CPU_LEVEL

namespace oracle::RINGSIDE_CPU_LEVEL {
Result forward(const Attention& a, const Arrays& x);
Gradients backward(const Attention& a, const Arrays& x, const double* dout, const Result& saved);
}  // namespace oracle::RINGSIDE_CPU_LEVEL

extern "C" {
extern const CpuKernels RINGSIDE_CPU_KERNELS;
const CpuKernels RINGSIDE_CPU_KERNELS{
    RINGSIDE_CPU_LEVEL::tile_forward, RINGSIDE_CPU_LEVEL::tile_backward,
    oracle::RINGSIDE_CPU_LEVEL::forward, oracle::RINGSIDE_CPU_LEVEL::backward};
}

}  // namespace ringside
