// How many multiprocessors a device has.
#pragma once

#include <cstdint>

namespace ringside {

// The current device's; 1 where there is none, as a launch says that itself.
int processors_of_device();

// Of a grid whose blocks stay on their multiprocessors and take so many items from a queue: one on
// each but so many, which it leaves to other kernels; at least one.
unsigned blocks_that_stay(int64_t items, int sm_margin);

}  // namespace ringside
