// What lies in shared memory before a kernel begins: what the last one left, or what a test put
// there.
#pragma once

#include <cuda_runtime_api.h>

namespace ringside::testing {

// NaN in all shared memory of the device, of 16 bits and of 32 alike. Over the interpreter, whose
// blocks begin with NaN, nothing.
void spoil_shared_memory(cudaStream_t stream);

}  // namespace ringside::testing
