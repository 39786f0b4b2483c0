#include "reference/support/parallel.h"

#include <gtest/gtest.h>

#ifdef __linux__
#include <sched.h>
#endif

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
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

#ifdef __linux__
TEST(ParallelFor, StaysOnTheProcessorsThatTheProcessMayUse) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(usable_processors(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_for(1000, [&](int) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(threads.size(), 1);
}
#endif

TEST(RunTogether, EveryThreadWorksOnceAndTheFirstFailureIsThrown) {
  std::atomic<int> runs{0};
  run_together(7, [&] { ++runs; });
  EXPECT_EQ(runs, 7);
  EXPECT_THROW(run_together(3, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

}  // namespace
}  // namespace ringside
