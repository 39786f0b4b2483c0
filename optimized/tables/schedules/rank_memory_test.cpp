#include "optimized/tables/schedules/rank_memory.h"

#include <gtest/gtest.h>

#include "reference/schedule/builder.h"
#include "reference/support/errors.h"

namespace ringside {
namespace {

// Two areas: k and v of 6 cells, and results of 10 of which a buffer uses the last 4.
Schedule schedule_by_hand() {
  ScheduleBuilder b(Pass::forward, 0);
  b.add_buffer(Payload::keys, 3, {0, 4}, kCaller);
  b.add_buffer(Payload::keys, 3, {2, 4}, b.add_area(Payload::keys));
  const int results = b.add_area(Payload::results);
  b.add_buffer(Payload::results, 3, {0, 2}, results);
  b.add_buffer(Payload::results, 2, {0, 2}, results, 6);
  return b.schedule();
}

TEST(RankMemory, ArraysOfAnAreaLieApart) {
  const Schedule schedule = schedule_by_hand();
  const CellSizes sizes = cell_sizes(Pass::forward, 64, 32, 2);
  const RankMemory memory = place_areas(schedule, sizes, 300);
  EXPECT_EQ(memory.of_area, (std::vector<std::vector<int64_t>>{{512, 1280}, {1792, 3072}}));
  EXPECT_EQ(memory.end, 3328);
}

TEST(RankMemory, BlocksAreRowsAtAPitch) {
  const Schedule schedule = schedule_by_hand();
  const CellSizes sizes = cell_sizes(Pass::forward, 64, 32, 2);
  const RankMemory memory = place_areas(schedule, sizes, 0);
  const auto rows = [&](const Block& block, int array) {
    return rows_of(schedule, memory, sizes, block, array);
  };
  EXPECT_EQ(rows({0, 1, 2, {2, 4}}, 1), (Rows{6 * 64, 4 * 64, 2 * 64, 2}));  // of the caller's v
  EXPECT_FALSE(rows({0, 1, 2, {2, 4}}, 1).dense());
  EXPECT_TRUE(rows({0, 1, 1, {2, 4}}, 1).dense());
  EXPECT_EQ(rows({1, 1, 2, {2, 4}}, 0), (Rows{2 * 128, 256, 256, 2}));
  EXPECT_EQ(rows({3, 1, 1, {0, 2}}, 1), (Rows{memory.of_area[1][1] + 8 * 4, 8, 8, 1}));
}

TEST(RankMemory, BackwardQueriesBringDoutLseAndDelta) {
  const CellSizes sizes = cell_sizes(Pass::backward, 64, 32, 4);
  EXPECT_EQ(sizes.of(Payload::queries), (std::vector<int>{256, 128, 4, 4}));
  EXPECT_EQ(sizes.of(Payload::key_gradients), (std::vector<int>{256, 128}));
}

TEST(RankMemory, KnowsWhoHostsARank) {
  const Hosting hosting{{{0, 3}, {1, 2}}, 1};
  EXPECT_EQ(hosting.hosted(), (std::vector<int>{1, 2}));
  EXPECT_EQ(hosting.process_of(3), 0);
  EXPECT_THROW(hosting.process_of(4), InvalidArgument);
}

}  // namespace
}  // namespace ringside
