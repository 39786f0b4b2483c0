// CUDA's error codes as exceptions that say where.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "reference/support/errors.h"

namespace ringside {

struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void cuda_check(cudaError_t error, const char* what, const char* file, int line) {
  if (error == cudaSuccess) return;
  throw CudaError(concat(file, ":", line, ": ", what, ": ", cudaGetErrorName(error), ", ",
                         cudaGetErrorString(error)));
}

}  // namespace ringside

#define RINGSIDE_CUDA(call) ::ringside::cuda_check((call), #call, __FILE__, __LINE__)
