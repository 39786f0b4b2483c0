#include "reference/parallel.h"

#include <gtest/gtest.h>

namespace ringside {
namespace {

TEST(ParallelFor, RunsEachItemOnce) {
  for (const int items : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> runs(items);
    parallel_for(items, [&](int i) { ++runs[i]; });
    for (const auto& times : runs) EXPECT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace ringside
