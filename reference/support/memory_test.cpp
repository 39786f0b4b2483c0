#include "reference/support/memory.h"

#include <gtest/gtest.h>

#include "reference/test_support/test_errors.h"

namespace ringside {
namespace {

TEST(Memory, IsWhatMayBeAskedFor) {
  EXPECT_GT(bytes_of_memory(), 1 << 20);
  EXPECT_NO_THROW(require_memory(bytes_of_memory(), "it", "Ask for less"));
}

TEST(Memory, ThatNoMachineHasIsRefused) {
  testing::expect_error<InvalidArgument>(
      [] { require_memory(1e24, "cp_size=9: it", "Ask for less"); },
      {"cp_size=9: it would take about 931322574615478.5 GiB; expected at most ",
       "GiB, what this machine has. Ask for less"});
}

TEST(Memory, InWordsIsInGibibytes) {
  EXPECT_EQ(gibibytes(1.5 * (1 << 30)), "1.5 GiB");
  EXPECT_EQ(gibibytes(0), "0.0 GiB");
}

}  // namespace
}  // namespace ringside
