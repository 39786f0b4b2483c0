// Texts that are not understood are refused.
#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

TEST(PtxText, KernelsAreFoundByModuleAndName) {
  add_module("found", testing::kernel_text("", 0));
  EXPECT_NE(find_kernel("found", "kernel"), nullptr);
  EXPECT_EQ(find_kernel("found", "kerne"), nullptr);
  EXPECT_EQ(find_kernel("lost", "kernel"), nullptr);
}

TEST(PtxTextDeathTest, WhatIsNotUnderstoodIsRefused) {
  EXPECT_DEATH(testing::results_of("mov.b32 %r0, 1.5;"), "a number of another form: 1.5");
  EXPECT_DEATH(testing::results_of("mov.b32 %r0, %clock;"), "no symbol %clock");
  EXPECT_DEATH(testing::results_of("bra NOWHERE;"), "no label NOWHERE");
}

}  // namespace
}  // namespace ringside::ptx
