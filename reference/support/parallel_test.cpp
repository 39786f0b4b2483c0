#include "reference/support/parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace ringside {
namespace {

TEST(ParallelFor, RunsEachItemOnce) {
  for (const int items : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> runs(items);
    parallel_for(items, [&](int i) { ++runs[i]; });
    for (const auto& times : runs) EXPECT_EQ(times, 1);
  }
}

TEST(ParallelFor, ThrowsWhatARunThrewAndBeginsNoOther) {
  for (const int guilty : {0, 1, 500}) {
    std::atomic<int> runs{0};
    const auto run = [&](int i) {
      ++runs;
      if (i == guilty) throw std::out_of_range("item");
    };
    EXPECT_THROW(parallel_for(1 << 30, run), std::out_of_range);
    EXPECT_LT(runs, 1 << 29);
  }
}

TEST(RunTogether, EveryThreadWorksOnceAndTheFirstFailureIsThrown) {
  std::atomic<int> runs{0};
  run_together(7, [&] { ++runs; });
  EXPECT_EQ(runs, 7);
  EXPECT_THROW(run_together(3, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

}  // namespace
}  // namespace ringside
