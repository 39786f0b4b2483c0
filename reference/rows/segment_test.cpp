// Segments against the plain list of (sequence, position) of their rows.
#include "reference/rows/segment.h"

#include <gtest/gtest.h>

#include <climits>
#include <random>
#include <utility>
#include <vector>

#include "reference/test_support/test_seed.h"

namespace ringside {
namespace {

using Rows = std::vector<std::pair<int, int>>;  // (sequence, position) of each row

Rows rows_of(const Shard& shard) {
  Rows rows;
  for (const Segment& s : shard)
    for (int i = 0, pos = s.pos; i < s.len; ++i, pos += s.stride) rows.push_back({s.seq, pos});
  return rows;
}

template <typename Visit>
void for_small_segments(Visit visit) {
  for (int pos = 0; pos <= 5; ++pos)
    for (int stride = 1; stride <= 5; ++stride)
      for (int len = 0; len <= 6; ++len) visit(Segment{0, pos, stride, 3, len});
}

TEST(Segment, PositionsGoUpByTheStride) {
  const Segment s{2, 5, 3, 10, 4};
  EXPECT_EQ(s.position(0), 5);
  EXPECT_EQ(s.position(3), 14);
  EXPECT_EQ(s.row_end(), 14);
}

TEST(Segment, RowsWithinAreExactlyThosePositions) {
  for_small_segments([](const Segment& s) {
    for (int begin = -3; begin <= 36; ++begin)
      for (int end = -4; end <= 38; ++end) {  // also inside out: nothing
        const Interval rows = s.rows_within({begin, end});
        ASSERT_LE(rows.begin, rows.end);
        for (int i = 0, pos = s.pos; i < s.len; ++i, pos += s.stride)
          ASSERT_EQ(rows.contains(i), begin <= pos && pos < end)
              << "row " << i << " pos " << s.pos << " stride " << s.stride << " of " << begin
              << ".." << end;
        ASSERT_TRUE(0 <= rows.begin && rows.end <= s.len);
      }
  });
}

TEST(Segment, RowsBelowCountsTheLeadingRows) {
  for_small_segments([](const Segment& s) {
    for (int length = -1; length <= 38; ++length) {
      int below = 0;
      for (int i = 0; i < s.len; ++i) below += s.pos + i * s.stride < length;
      ASSERT_EQ(s.rows_below(length), below);
    }
  });
}

TEST(Segment, RowsBehindAGapAreFurther) {
  for_small_segments([](Segment s) {
    for (s.gap_at = 1; s.gap_at < s.len; ++s.gap_at)
      for (s.gap = 0; s.gap <= 7; s.gap += s.gap < 3 ? 1 : 4) {
        std::vector<int> positions;
        for (int i = 0; i < s.len; ++i)
          positions.push_back(s.pos + i * s.stride + (i >= s.gap_at ? s.gap : 0));
        for (int i = 0; i < s.len; ++i) ASSERT_EQ(s.position(i), positions[i]);
        for (int begin = -2; begin <= 44; ++begin) {
          int below = 0;
          for (const int position : positions) below += position < begin;
          ASSERT_EQ(s.rows_below(begin), below) << s.gap_at << " " << s.gap;
          const Interval rows = s.rows_within({begin, begin + 9});
          for (int i = 0; i < s.len; ++i)
            ASSERT_EQ(rows.contains(i), begin <= positions[i] && positions[i] < begin + 9);
        }
      }
  });
}

TEST(Segment, TheWholeAxisHoldsEveryRow) {
  const Segment s{0, INT_MAX - 3, 1, 0, 3};
  EXPECT_EQ(s.rows_within({INT_MIN, INT_MAX}), (Interval{0, 3}));
  EXPECT_EQ((Segment{0, 0, INT_MAX, 0, 2}.rows_within({1, INT_MAX})), (Interval{1, 1}));
  EXPECT_EQ((Segment{0, 0, INT_MAX, 0, 2}.rows_below(INT_MAX)), 1);
}

TEST(Segment, AnEmptyShardHasNoRows) { EXPECT_EQ(num_rows({}), 0); }

TEST(Append, JoinsWhatSimplyGoesOn) {
  Shard shard;
  append(shard, 0, 4, 1, 2);
  append(shard, 0, 6, 1, 3);
  EXPECT_EQ(shard, (Shard{{0, 4, 1, 0, 5}}));
  append(shard, 1, 1, 3, 2);  // positions 1, 4
  append(shard, 1, 7, 3, 1);
  EXPECT_EQ(shard, (Shard{{0, 4, 1, 0, 5}, {1, 1, 3, 5, 3}}));
}

TEST(Append, KeepsApartWhatDoesNotGoOn) {
  Shard shard;
  append(shard, 0, 0, 1, 2);
  append(shard, 1, 2, 1, 2);  // another sequence
  append(shard, 1, 5, 1, 2);  // a gap
  append(shard, 1, 7, 2, 2);  // another stride
  append(shard, 1, 7, 2, 2);  // the same again
  EXPECT_EQ(
      shard,
      (Shard{{0, 0, 1, 0, 2}, {1, 2, 1, 2, 2}, {1, 5, 1, 4, 2}, {1, 7, 2, 6, 2}, {1, 7, 2, 8, 2}}));
}

TEST(Append, LeavesEmptyRunsOut) {
  Shard shard;
  append(shard, 0, 0, 1, 0);
  append(shard, 0, 3, 1, -2);
  EXPECT_TRUE(shard.empty());
}

TEST(Append, KeepsEveryRowInOrder) {
  std::mt19937 random = testing::engine(7);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (int repeat = 0; repeat < 500; ++repeat) {
    Shard shard;
    Rows want;
    for (int run = below(8); run > 0; --run) {
      const int seq = below(2), pos = below(5), stride = 1 + below(3), len = below(4);
      append(shard, seq, pos, stride, len);
      for (int i = 0; i < len; ++i) want.push_back({seq, pos + i * stride});
    }
    ASSERT_EQ(rows_of(shard), want);
    ASSERT_EQ(num_rows(shard), static_cast<int>(want.size()));
    for (int i = 0, row = 0; i < static_cast<int>(shard.size()); row += shard[i++].len)
      ASSERT_EQ(shard[i].row, row) << "segments lie back to back";
  }
}

}  // namespace
}  // namespace ringside
