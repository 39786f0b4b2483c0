// A kernel that begins while the one before it, which fills its table, is still at work.
#pragma once

#include <cuda_runtime.h>

#include "optimized/device/error.h"

namespace ringside::thd {

// In the first kernel: the next one may start, up to wait_for_table().
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// In the next kernel: what the first wrote can be read from here on.
__device__ inline void wait_for_table() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Whether this device runs code in which wait_for_table() waits; PTX for older ones has none.
template <typename Kernel>
bool can_start_early(Kernel kernel) {
  cudaFuncAttributes attributes{};
  RINGSIDE_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.ptxVersion >= 90;
}

struct Grid {
  int64_t blocks;
  int threads;
  bool after_table;  // of the kernel before
};

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
            Arguments&&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = grid.after_table && can_start_early(kernel) ? 1 : 0;
  RINGSIDE_CUDA(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

}  // namespace ringside::thd
