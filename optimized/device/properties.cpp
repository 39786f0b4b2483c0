#include "optimized/device/properties.h"

#include <cuda_runtime_api.h>

#include "optimized/device/error.h"

namespace ringside {
namespace {

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  RINGSIDE_CUDA(cudaDeviceGetAttribute(&value, name, device));
  return value;
}

}  // namespace

int current_device() {
  int device = 0;
  RINGSIDE_CUDA(cudaGetDevice(&device));
  return device;
}

DeviceProperties properties_of(int device) {
  return {10 * attribute(cudaDevAttrComputeCapabilityMajor, device) +
              attribute(cudaDevAttrComputeCapabilityMinor, device),
          attribute(cudaDevAttrMultiProcessorCount, device),
          attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device)};
}

int64_t memory_rate_of(int device) {
  const int64_t clock = attribute(cudaDevAttrMemoryClockRate, device);  // kHz, two words each
  return 2000 * clock * attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8;
}

void require_made_on(int current, int made_on, const char* what) {
  require(current == made_on, "device ", current, " is current; expected device ", made_on,
          ", on which the ", what, " was made. Make that one current, or a ", what,
          " for each device");
}

}  // namespace ringside
