#include "reference/thd/step_entry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "reference/test_support/test_random_case.h"

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

struct RandomSequence {
  StepSequence sequence;
  Keys keys;
  bool equal_layouts;

  explicit RandomSequence(testing::Random& random) {
    const int cp_size = random.integer(1, 4), most = random.coin() ? 12 : 60;
    const DualChunk q{random.integer(0, most), cp_size};
    equal_layouts = random.coin();
    const DualChunk k = equal_layouts ? q : DualChunk{random.integer(0, most), cp_size};
    const int len_q = random.integer(0, q.rows);
    const int len_k = equal_layouts ? len_q : random.integer(0, k.rows);
    const int rank = random.integer(0, cp_size - 1);
    Runs queries = q.runs(rank, random.integer(0, 9));
    keys = random.coin() ? Keys::gathered : Keys::of_a_rank;
    if (keys == Keys::gathered || random.integer(0, 3) == 0)
      queries = random.coin() ? queries.first_half() : queries.second_half();
    const int first = random.integer(0, 9);
    const Runs resident = keys == Keys::gathered ? Runs{{0, k.rows}, {}, first}
                                                 : k.runs(random.integer(0, cp_size - 1), first);
    sequence = {testing::random_mask(random), len_q, len_k, queries, resident};
  }
};

std::array<int, 6> parts(const StepEntry& e) {
  return {e.q_row, e.q_len, e.kv_row, e.kv_len, e.lo_moves, e.hi_moves};
}

TEST(StepEntry, OfAPlainMaskIsTheWholeWalk) {
  testing::Random random(1);
  int compared = 0, with_queries = 0;
  for (int n = 0; n < testing::cases(400'000); ++n) {
    const RandomSequence c(random);
    if (!has_one_entry(c.sequence.mask, c.keys, c.equal_layouts)) continue;
    EntryWalk walk(c.sequence);
    StepEntry entry;
    ASSERT_TRUE(walk.next(entry));
    ASSERT_EQ(parts(entry), parts(c.sequence.only_entry())) << "case " << n;
    ASSERT_FALSE(walk.next(entry)) << "case " << n;
    ++compared, with_queries += entry.q_len > 0;
  }
  EXPECT_GT(compared, testing::cases(100'000));
  EXPECT_GT(with_queries, testing::cases(30'000));
}

TEST(StepEntry, ThereAreNeverMoreThanTheMost) {
  testing::Random random(2);
  int64_t largest = 0;
  for (int n = 0; n < testing::cases(200'000); ++n) {
    const RandomSequence c(random);
    int64_t entries = 0;
    EntryWalk walk(c.sequence);
    for (StepEntry entry; walk.next(entry);) ++entries;
    ASSERT_LE(entries,
              most_entries(c.sequence.mask, c.keys, c.equal_layouts, 1, c.sequence.q.num_rows()));
    largest = std::max(largest, entries);
  }
  EXPECT_GT(largest, 5);
}

}  // namespace
}  // namespace ringside::thd
