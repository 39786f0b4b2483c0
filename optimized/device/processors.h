// How many multiprocessors a device has.
#pragma once

namespace ringside {

// The current device's; 1 where there is none, as a launch says that itself.
int processors_of_device();

}  // namespace ringside
