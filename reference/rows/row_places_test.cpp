// Places of rows, held against a row-by-row search.
#include "reference/rows/row_places.h"

#include <gtest/gtest.h>

#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::Random;

// Every second rank's rows of a layout, one below the other.
Shard some_ranks(Random& random, const PackedLayout& layout, int cp_size) {
  Shard shard;
  const NamedPartition& partition = testing::random_partition(random);
  for (int rank = 0; rank < cp_size; ++rank)
    if (random.coin())
      for (const Segment& s : testing::shard_of(partition, layout, cp_size, rank))
        append(shard, s.seq, s.pos, s.stride, s.len);
  return shard;
}

TEST(RowPlaces, AreThoseOfTheSamePositions) {
  Random random(211);
  for (int i = 0; i < 1000; ++i) {
    random.begin_case();
    const PackedLayout layout = testing::random_layout(random, random.integer(1, 4));
    const int cp_size = random.integer(1, 6);
    const Shard from = some_ranks(random, layout, cp_size),
                to = some_ranks(random, layout, cp_size);
    const int begin = random.integer(0, num_rows(from)),
              end = random.integer(begin, num_rows(from));
    std::vector<std::pair<int, int>> want, got;  // (row of from, row of to)
    const auto rows_from = global_rows(layout, from), rows_to = global_rows(layout, to);
    for (int row = begin; row < end; ++row) {
      const auto place = std::ranges::find(rows_to, rows_from[row]);
      if (place != rows_to.end()) want.emplace_back(row, place - rows_to.begin());
    }
    const RowPlaces places(to);
    const auto runs = places.runs(from, {begin, end});
    for (const RowRun& run : runs)
      for (int j = 0; j < run.rows; ++j) got.emplace_back(run.from + j, run.to + j * run.to_step);
    ASSERT_EQ(got, want);
    ASSERT_EQ(rows_of(runs), std::ssize(want));
    const auto whole = places.runs(from, {0, num_rows(from)});
    const bool block = is_one_block(whole) && whole[0].rows == num_rows(from);
    ASSERT_EQ(places.block_of(from), block ? whole[0].to : from.empty() ? 0 : -1);
  }
}

TEST(RowPlaces, OfStripesAreEveryFourthRow) {
  const RowPlaces whole({{0, 0, 1, 0, 100}, {1, 0, 1, 100, 50}});
  EXPECT_EQ(whole.runs({{0, 3, 4, 0, 25}, {1, 3, 4, 25, 12}}, {0, 37}),
            (std::vector<RowRun>{{0, 3, 37, 1, 4}}));
}

TEST(RowPlaces, GoOnAcrossSegmentsThatLieTogetherInBoth) {
  const RowPlaces whole({{0, 0, 1, 0, 100}, {1, 0, 1, 100, 50}});
  const Shard end_and_begin{{0, 90, 1, 0, 10}, {1, 0, 1, 10, 20}};
  EXPECT_EQ(whole.runs(end_and_begin, {0, 30}), (std::vector<RowRun>{{0, 90, 30}}));
  EXPECT_EQ(whole.block_of(end_and_begin), 90);
  EXPECT_EQ(whole.block_of({{0, 90, 1, 0, 10}, {1, 1, 1, 10, 20}}), -1);
}

}  // namespace
}  // namespace ringside
