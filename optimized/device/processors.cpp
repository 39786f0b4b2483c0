#include "optimized/device/processors.h"

#include <cuda_runtime_api.h>

namespace ringside {

int processors_of_device() {
  int device = 0, processors = 1;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return 1;
  return processors;
}

}  // namespace ringside
