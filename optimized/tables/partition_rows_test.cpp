// What ranks own in closed form: against the partitions.
#include "optimized/tables/partition_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "optimized/tables/capacity.h"
#include "reference/partition/partition.h"
#include "reference/test_support/test_random_case.h"
#include "reference/transport/transport.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::Random;

Shard shard_in_closed_form(const PackedLayout& layout, const PartitionRows& partition, int group) {
  std::map<int, Segment> by_index;
  int row = 0;
  for (int s = 0; s < layout.batch(); ++s) {
    const int begin = layout.row_begin(s), end = begin + layout.padded_len(s);
    int rows = 0;
    for (int p = 0; p < partition.parts(); ++p) {
      Segment own = partition.segment(group, p, s, begin, end, layout.num_rows());
      if (!partition.of_stream()) own.row += row;
      if (own.len > 0) by_index[partition.index(s, p, layout.batch())] = own;
      rows += own.len;
    }
    EXPECT_EQ(rows, partition.rows(group, begin, end, layout.num_rows()));
    row += rows;
  }
  Shard shard;
  for (const auto& [index, s] : by_index) {
    EXPECT_EQ(s.row, num_rows(shard)) << "segments lie back to back, in the order of the table";
    append(shard, s.seq, s.pos, s.stride, s.len);
  }
  EXPECT_EQ(by_index.size(), shard.size()) << "chunks that meet are one segment";
  return shard;
}

TEST(PartitionRows, AreThoseOfThePartitions) {
  Random random(1);
  for (int number = 0; number < testing::cases(100'000); ++number) {
    const PackedLayout layout = testing::random_layout(random, random.integer(0, 5));
    const NamedPartition& named = testing::random_closed_form(random);
    const int cp_size = random.integer(2, 8), rank = random.integer(0, cp_size - 1);
    const PartitionRows partition{named.rule, cp_size};
    ASSERT_EQ(named.shard(layout, cp_size, rank), shard_in_closed_form(layout, partition, rank))
        << named.name << ", case " << number;
  }
}

std::vector<int> rows_of(const PackedLayout& layout, const Shard& shard) {
  std::vector<int> rows = global_rows(layout, shard);
  std::ranges::sort(rows);
  return rows;
}

TEST(PartitionRows, OfAGroupAreThoseOfItsRanksInAsFewSegments) {
  Random random(6);
  for (int number = 0; number < testing::cases(50'000); ++number) {
    const PackedLayout layout = testing::random_layout(random, random.integer(0, 5));
    const NamedPartition& named = testing::random_closed_form(random);
    const int ranks = random.integer(1, 4), cp_size = ranks * random.integer(1, 4);
    const PartitionRows partition{named.rule, cp_size, ranks};
    const int group = random.integer(0, partition.groups() - 1);
    Shard below;
    for (int rank = group * ranks; rank < (group + 1) * ranks; ++rank)
      for (const Segment& s : named.shard(layout, cp_size, rank))
        append(below, s.seq, s.pos, s.stride, s.len);
    const Shard shard = shard_in_closed_form(layout, partition, group);
    ASSERT_EQ(rows_of(layout, below), rows_of(layout, shard)) << named.name << ", case " << number;
    const bool deals = named.rule.kind == PartitionKind::striped && partition.groups() > 1;
    const auto most =
        deals ? below.size() : in_fewer_segments(below, layout.batch()).value_or(below).size();
    ASSERT_LE(shard.size(), most) << named.name << ", case " << number;
  }
}

TEST(PartitionRows, OfAllRanksAreWholeSequences) {
  Random random(8);
  for (const NamedPartition& named : partitions()) {
    if (!named.rule.is_closed_form()) continue;
    const PackedLayout layout = testing::random_layout(random, 5);
    Shard whole;
    for (int s = 0; s < layout.batch(); ++s) append(whole, s, 0, 1, layout.padded_len(s));
    EXPECT_EQ(whole, shard_in_closed_form(layout, {named.rule, 4, 4}, 0)) << named.name;
  }
}

TEST(PartitionRows, NeedNoMoreRoomThanACapacityHas) {
  Random random(4);
  for (int number = 0; number < testing::cases(20'000); ++number) {
    Capacity c;
    c.partition = testing::random_closed_form(random).name;
    c.cp_size = random.integer(1, 8);
    const int unit = random.choice<int>({1, c.cp_size, 2 * c.cp_size});
    c.pad_to_multiple_of = unit;
    std::vector<int32_t> cu{0};
    c.max_sequences = random.integer(1, 6);
    for (int s = 0; s < c.max_sequences; ++s) cu.push_back(cu.back() + unit * random.integer(0, 9));
    for (int rank = 0; rank < c.cp_size; ++rank)
      ASSERT_LE(num_rows(find_partition(c.partition).shard(PackedLayout(cu), c.cp_size, rank)),
                rank_rows(c, cu.back()))
          << c.partition << ", cp_size " << c.cp_size << ", case " << number;
  }
}

}  // namespace
}  // namespace ringside
