#include "reference/thd/step_entry.h"

#include <gtest/gtest.h>

namespace ringside::thd {
namespace {

TEST(StepEntry, OfOneRowHidesNothing) {
  const StepEntry entry = StepEntry::of({3, 1, {5, 9}, {5, 9}});
  EXPECT_EQ(entry.kv_row, 5);
  EXPECT_EQ(entry.kv_len, 4);
  EXPECT_EQ(entry.window_left(), kUnbounded);
  EXPECT_EQ(entry.window_right(), kUnbounded);
}

TEST(StepEntry, JoinsTwoCausalHalvesIntoOneDiagonal) {
  StepEntry entry = StepEntry::of({0, 4, {0, 1}, {0, 4}});
  EXPECT_TRUE(entry.extend({4, 4, {0, 5}, {0, 8}}));
  EXPECT_EQ(entry.q_len, 8);
  EXPECT_EQ(entry.kv_len, 8);
  EXPECT_EQ(entry.window_left(), kUnbounded);
  EXPECT_EQ(entry.window_right(), 0);
}

TEST(StepEntry, ClipsAWindowAtBothEnds) {  // (1, 1) over 4 keys
  StepEntry entry = StepEntry::of({0, 1, {0, 2}, {0, 2}});
  EXPECT_TRUE(entry.extend({1, 2, {0, 3}, {1, 4}}));
  EXPECT_TRUE(entry.extend({3, 1, {2, 4}, {2, 4}}));
  EXPECT_EQ(entry.window_left(), 1);
  EXPECT_EQ(entry.window_right(), 1);
}

TEST(StepEntry, RefusesWhatOneWindowCannotSay) {
  const StepEntry resting = StepEntry::of({0, 3, {0, 4}, {0, 4}});
  const StepEntry moving = StepEntry::of({0, 3, {0, 4}, {2, 6}});
  const auto takes = [](StepEntry entry, const QueryRun& next) { return entry.extend(next); };
  EXPECT_TRUE(takes(resting, {3, 1, {0, 4}, {0, 4}}));
  EXPECT_FALSE(takes(resting, {3, 1, {0, 5}, {0, 5}})) << "the upper end rested, then moves";
  EXPECT_FALSE(takes(resting, {4, 1, {0, 4}, {0, 4}})) << "a row was left out";
  EXPECT_TRUE(takes(resting, {3, 2, {1, 4}, {2, 4}})) << "the lower end rested, then moves";
  EXPECT_FALSE(takes(moving, {3, 1, {2, 7}, {2, 7}})) << "the lower end moved, then rests";
  EXPECT_FALSE(takes(moving, {3, 2, {3, 7}, {3, 8}})) << "the lower end moves, then rests";
  EXPECT_FALSE(takes(moving, {3, 2, {3, 6}, {4, 7}})) << "the upper end rests, then moves";
  EXPECT_TRUE(takes(moving, {3, 2, {3, 7}, {4, 7}}));
  EXPECT_FALSE(takes(moving, {3, 1, {4, 7}, {4, 7}})) << "the lower end jumps";
  EXPECT_FALSE(takes(moving, {3, 1, {3, 8}, {3, 8}})) << "the upper end jumps";
}

TEST(StepSequence, StopsWhereAnEndOfTheWindowCrossesTheGap) {
  // Keys 0..1 and 6..7; a window two ahead meets key 6 from query 4 on.
  const StepSequence s{
      Mask::sliding_window(kUnbounded, 2), 8, 8, {{2, 6}, {}, 0}, {{0, 2}, {6, 8}, 0}};
  const QueryRun gap = s.query_run(2, 6);
  EXPECT_EQ(gap.len, 1);  // to query 3, whose window ends at the gap's end
  EXPECT_EQ(gap.last, (Interval{0, 2}));
  const QueryRun rise = s.query_run(3, 6);
  EXPECT_EQ(rise.len, 2);  // query 5 sees the last key: from there on the end rests
  EXPECT_EQ(rise.last, (Interval{0, 3}));
}

}  // namespace
}  // namespace ringside::thd
