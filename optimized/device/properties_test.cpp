#include "optimized/device/properties.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>

#include "optimized/device/processors.h"
#include "reference/support/errors.h"

namespace ringside {
namespace {

TEST(DeviceProperties, AnotherDeviceIsRefused) {
  EXPECT_NO_THROW(require_made_on(1, 1, "program"));
  try {
    require_made_on(0, 1, "program");
    FAIL() << "device 0 for device 1";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "device 0 is current; expected device 1, on which the program was made. Make that "
                 "one current, or a program for each device");
  }
}

TEST(DeviceProperties, OfTheCurrentDevice) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no device";
  const DeviceProperties found = properties_of(current_device());
  EXPECT_GE(found.compute_capability, 80);
  EXPECT_GE(found.multiprocessors, 1);
  EXPECT_GE(found.shared_bytes_of_block, 48 << 10);
}

TEST(DeviceProperties, BlocksThatStayLeaveSomeProcessorsToOthers) {
  const auto all = static_cast<unsigned>(processors_of_device());
  EXPECT_EQ(blocks_that_stay(1 << 20, 0), all);
  EXPECT_EQ(blocks_that_stay(1, 0), 1u);
  for (unsigned margin = 1; margin < all; ++margin)
    EXPECT_EQ(blocks_that_stay(1 << 20, static_cast<int>(margin)), all - margin);
  for (const unsigned margin : {all, all + 7})
    EXPECT_EQ(blocks_that_stay(1 << 20, static_cast<int>(margin)), 1u);
}

}  // namespace
}  // namespace ringside
