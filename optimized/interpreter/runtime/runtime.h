// The CUDA runtime in place of NVIDIA's: all that Ringside calls of it, done at once in the order
// of the calls. A test linked with it runs its kernels without a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace ringside::ptx {

// What cudaGetLastError() returns next.
cudaError_t note(cudaError_t error);

void* driver_function(const char* name);  // null: the interpreter's driver has none of this name

}  // namespace ringside::ptx
