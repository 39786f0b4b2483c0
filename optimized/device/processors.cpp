#include "optimized/device/processors.h"

#include <cuda_runtime_api.h>

#include <algorithm>

namespace ringside {

int processors_of_device() {
  int device = 0, processors = 1;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return 1;
  return processors;
}

unsigned blocks_that_stay(int64_t items, int sm_margin) {
  const int64_t most = std::max(1, processors_of_device() - sm_margin);
  return static_cast<unsigned>(std::min(items, most));
}

}  // namespace ringside
