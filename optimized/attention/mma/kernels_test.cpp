#include "optimized/attention/mma/kernels.h"

#include <gtest/gtest.h>

namespace ringside::mma {
namespace {

TEST(MmaParameters, SayTheSameInBytes) {
  using enum Accumulate;
  for (const Accumulate accumulate : {merge, start, only}) {
    for (const auto layout : {AccumulatorLayout::rows, AccumulatorLayout::tiles}) {
      ForwardArguments arguments;
      arguments.layout = layout, arguments.accumulate = accumulate;
      EXPECT_EQ(ForwardParameters(arguments).out_in_tiles, layout == AccumulatorLayout::tiles);
      EXPECT_EQ(ForwardParameters(arguments).is_final, accumulate == only);
    }
    BackwardArguments arguments;
    arguments.accumulate = accumulate;
    EXPECT_EQ(BackwardParameters(arguments).is_first, accumulate == start);
    EXPECT_EQ(BackwardParameters(arguments).is_final, accumulate == only);
  }
}

}  // namespace
}  // namespace ringside::mma
