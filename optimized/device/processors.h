// How many multiprocessors a device has, asked once.
#pragma once

namespace ringside {

int processors_of_device();  // the current one's

}  // namespace ringside
