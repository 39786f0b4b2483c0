#include "reference/thd/dual_chunk.h"

#include <gtest/gtest.h>

#include <vector>

#include "reference/partition/partition.h"

namespace ringside::thd {
namespace {

TEST(DualChunk, HoldsEachPositionOnce) {
  for (int cp_size = 1; cp_size <= 5; ++cp_size)
    for (int rows = 0; rows <= 40; ++rows) {
      const DualChunk chunks{rows, cp_size};
      std::vector<int> holders(rows);
      for (int rank = 0; rank < cp_size; ++rank)
        for (int row = 0; row < chunks.local_rows(rank); ++row)
          ++holders[chunks.runs(rank, 0).position_at(row)];
      ASSERT_EQ(holders, std::vector<int>(rows, 1)) << "rows " << rows << ", cp_size " << cp_size;
    }
}

TEST(DualChunk, IsThePartitionNamedZigzag) {
  for (int cp_size = 1; cp_size <= 5; ++cp_size)
    for (int rows = 0; rows <= 40; ++rows)
      for (int rank = 0; rank < cp_size; ++rank) {
        const Runs runs = DualChunk{rows, cp_size}.runs(rank, 0);
        Shard shard;
        append(shard, 0, runs.first.begin, 1, runs.first.size());
        append(shard, 0, runs.second.begin, 1, runs.second.size());
        ASSERT_EQ(shard, find_partition("zigzag").shard(PackedLayout({0, rows}), cp_size, rank));
      }
}

TEST(DualChunk, IsTransformerEnginesOrderWhereLengthsDivide) {
  const std::vector<std::vector<int>> held{
      {0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}};
  for (int rank = 0; rank < 4; ++rank)
    for (int row = 0; row < 4; ++row)
      EXPECT_EQ((DualChunk{16, 4}.runs(rank, 0).position_at(row)), held[rank][row]);
}

TEST(DualChunk, StaysExactForTheLongestSequence) {
  const int rows = 2147483647;
  const Runs first = DualChunk{rows, 1000}.runs(0, 0);
  EXPECT_EQ(first.first, (Interval{0, 1073741}));
  EXPECT_EQ(first.second, (Interval{2146409905, rows}));
}

TEST(Runs, CountTheRowsBelowAPositionAcrossTheGap) {
  const Runs runs{{2, 4}, {8, 11}, 5};
  const int below[] = {0, 0, 0, 1, 2, 2, 2, 2, 2, 3, 4, 5, 5};
  for (int position = 0; position <= 12; ++position)
    EXPECT_EQ(runs.rows_below(position), below[position]) << position;
  EXPECT_EQ(runs.rows_below(-3), 0);
  EXPECT_EQ(runs.rows_below(int64_t{1} << 40), 5);
  for (int i = 0; i < runs.num_rows(); ++i) EXPECT_EQ(runs.rows_below(runs.position_at(i)), i);
  EXPECT_EQ(runs.second_half().row, 7);
}

}  // namespace
}  // namespace ringside::thd
