// What a device is, as far as kernels are chosen by it, and which one is current.
#pragma once

#include <cstdint>

namespace ringside {

struct DeviceProperties {
  int compute_capability = 0;  // 90 means 9.0
  int multiprocessors = 0;
  int shared_bytes_of_block = 0;  // that a kernel may ask for
};

int current_device();
DeviceProperties properties_of(int device);
// Bytes a second that a device's memory carries at most.
int64_t memory_rate_of(int device);

// Raises InvalidArgument unless the device that is current is the one on which `what` was made:
// tables, workspaces and streams of a device are good for nothing on another.
void require_made_on(int current, int made_on, const char* what);

}  // namespace ringside
