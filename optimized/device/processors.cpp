#include "optimized/device/processors.h"

#include <cuda_runtime_api.h>

#include "optimized/device/error.h"

namespace ringside {

int processors_of_device() {
  int device = 0, processors = 0;
  RINGSIDE_CUDA(cudaGetDevice(&device));
  RINGSIDE_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  return processors;
}

}  // namespace ringside
