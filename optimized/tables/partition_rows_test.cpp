// What ranks own in closed form: against the partitions.
#include "optimized/tables/partition_rows.h"

#include <gtest/gtest.h>

#include <map>

#include "optimized/tables/capacity.h"
#include "reference/partition/partition.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

Shard shard_in_closed_form(const PackedLayout& layout, const PartitionRows& partition, int rank) {
  std::map<int, Segment> by_index;
  Segment part[2];
  int row = 0;
  for (int s = 0; s < layout.batch(); ++s) {
    partition.segments(rank, s, layout.row_begin(s), layout.row_begin(s) + layout.padded_len(s),
                       layout.num_rows(), part);
    for (int p = 0; p < partition.parts(); ++p) {
      Segment own = part[p];
      if (!partition.of_stream()) own.row += row;
      if (own.len > 0) by_index[partition.index(s, p, layout.batch())] = own;
    }
    row += part[0].len + part[1].len;
  }
  Shard shard;
  for (const auto& [index, s] : by_index) {
    EXPECT_EQ(s.row, num_rows(shard)) << "segments lie back to back, in the order of the table";
    append(shard, s.seq, s.pos, s.stride, s.len);
  }
  return shard;
}

TEST(PartitionRows, AreThoseOfThePartitions) {
  Random random(1);
  for (int number = 0; number < 100'000; ++number) {
    const PackedLayout layout = testing::random_layout(random, random.integer(0, 5));
    const NamedPartition& named = testing::random_closed_form(random);
    const int cp_size = random.integer(1, 8), rank = random.integer(0, cp_size - 1);
    const PartitionRows partition{named.rule, cp_size};
    ASSERT_EQ(named.shard(layout, cp_size, rank), shard_in_closed_form(layout, partition, rank))
        << named.name << ", case " << number;
  }
}

TEST(PartitionRows, NeedNoMoreRoomThanACapacityHas) {
  Random random(4);
  for (int number = 0; number < 20'000; ++number) {
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
