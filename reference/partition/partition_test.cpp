// Who owns which rows: laws for every partition of the table, then the rule of each one, written
// again from its words.
#include "reference/partition/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using Ints = std::vector<int>;

// The position, in its sequence, of each of a rank's rows.
Ints positions(const Shard& shard, int seq) {
  Ints found;
  for (const Segment& s : shard)
    for (int i = 0; i < s.len; ++i)
      if (s.seq == seq) found.push_back(s.pos + i * s.stride);
  return found;
}

Ints all_positions(const Shard& shard) {
  Ints found;
  for (const Segment& s : shard)
    for (int i = 0; i < s.len; ++i) found.push_back(s.pos + i * s.stride);
  return found;
}

Shard contiguous(const PackedLayout& layout, int cp_size, int rank) {
  return find_partition("contiguous").shard(layout, cp_size, rank);
}
Shard zigzag(const PackedLayout& layout, int cp_size, int rank) {
  return find_partition("zigzag").shard(layout, cp_size, rank);
}
Shard striped(const PackedLayout& layout, int cp_size, int rank) {
  return find_partition("striped").shard(layout, cp_size, rank);
}
Shard whole_pack(const PackedLayout& layout, int cp_size, int rank) {
  return find_partition("whole_pack").shard(layout, cp_size, rank);
}
Shard whole_pack_zigzag(const PackedLayout& layout, int cp_size, int rank) {
  return find_partition("whole_pack_zigzag").shard(layout, cp_size, rank);
}

PackedLayout one_sequence(int rows) { return PackedLayout({0, 0}, {0, rows}); }

class EveryPartition : public ::testing::TestWithParam<NamedPartition> {
 protected:
  void expect_every_row_owned_once(const PackedLayout& layout, int cp_size) const {
    std::vector<int> owners(layout.num_rows());
    for (int rank = 0; rank < cp_size; ++rank) {
      int next_row = 0;
      for (const Segment& s : testing::shard_of(GetParam(), layout, cp_size, rank)) {
        ASSERT_TRUE(0 <= s.seq && s.seq < layout.batch() && s.len >= 1 && s.stride >= 1);
        ASSERT_EQ(s.row, next_row) << "segments lie back to back";
        next_row += s.len;
        for (int i = 0; i < s.len; ++i) {
          const int pos = s.pos + i * s.stride;
          ASSERT_TRUE(0 <= pos && pos < layout.padded_len(s.seq));
          ++owners[layout.row_begin(s.seq) + pos];
        }
      }
    }
    ASSERT_EQ(owners, std::vector<int>(layout.num_rows(), 1)) << "cp_size " << cp_size;
  }
};

TEST_P(EveryPartition, OwnsEveryRowOfOneSequenceOnce) {
  for (int cp_size = 1; cp_size <= 9; ++cp_size)
    for (int rows = 0; rows <= 40; ++rows) expect_every_row_owned_once(one_sequence(rows), cp_size);
}

TEST_P(EveryPartition, OwnsEveryRowOfAPackOnce) {
  testing::Random random(11);
  for (int i = 0; i < 300; ++i)
    expect_every_row_owned_once(testing::random_layout(random, random.integer(0, 6)), 1 + i % 9);
}

TEST_P(EveryPartition, OwnsNothingOfNothing) {
  for (const PackedLayout& layout : {PackedLayout(), PackedLayout({0, 0, 0})})
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(testing::shard_of(GetParam(), layout, 3, rank).empty());
}

TEST_P(EveryPartition, OneRankOwnsEverythingInOrder) {
  const PackedLayout layout({0, 2, 2, 7}, {0, 4, 4, 10});
  EXPECT_EQ(testing::shard_of(GetParam(), layout, 1, 0), (Shard{{0, 0, 1, 0, 4}, {2, 0, 1, 4, 6}}));
}

TEST_P(EveryPartition, GivesEachRankPositionsInRisingOrder) {
  for (int rank = 0; rank < 4; ++rank)
    for (const int rows : {1, 7, 8, 40}) {
      const Ints p = positions(testing::shard_of(GetParam(), one_sequence(rows), 4, rank), 0);
      EXPECT_TRUE(std::is_sorted(p.begin(), p.end()));
    }
}

TEST_P(EveryPartition, IsFoundByItsName) {
  EXPECT_STREQ(find_partition(GetParam().name).name, GetParam().name);
  EXPECT_STRNE(GetParam().summary, "");
}

TEST_P(EveryPartition, MakesOneShardARankForEachSide) {
  const Problem problem{PackedLayout({0, 11}), PackedLayout({0, 23}), Mask::full(), 1, 1};
  const OwnedRows owned = own_rows(GetParam(), problem, 3);
  ASSERT_EQ(owned.q.size(), 3u);
  ASSERT_EQ(owned.k.size(), 3u);
  int rows_q = 0, rows_k = 0;
  for (int rank = 0; rank < 3; ++rank)
    rows_q += num_rows(owned.q[rank]), rows_k += num_rows(owned.k[rank]);
  EXPECT_EQ(rows_q, 11);
  EXPECT_EQ(rows_k, 23);
}

INSTANTIATE_TEST_SUITE_P(Table, EveryPartition, ::testing::ValuesIn(partitions()),
                         [](const auto& named) { return std::string(named.param.name); });

class ClosedForm : public ::testing::TestWithParam<NamedPartition> {};

TEST_P(ClosedForm, DependsOnRowsNotOnTokens) {
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(GetParam().shard(PackedLayout({0, 1, 9}, {0, 7, 16}), 3, rank),
              GetParam().shard(PackedLayout({0, 7, 16}), 3, rank));
}

TEST_P(ClosedForm, OwnsTheShardsOfEachSide) {
  const Problem problem{PackedLayout({0, 11}), PackedLayout({0, 23}), Mask::full(), 1, 1};
  const OwnedRows owned = own_rows(GetParam(), problem, 3);
  const auto shards = make_shards(GetParam(), problem.layout_q, 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(shards[rank], GetParam().shard(problem.layout_q, 3, rank));
    EXPECT_EQ(owned.q[rank], shards[rank]);
    EXPECT_EQ(owned.k[rank], GetParam().shard(problem.layout_k, 3, rank));
  }
}

std::vector<NamedPartition> closed_forms() {
  std::vector<NamedPartition> closed;
  for (const NamedPartition& p : partitions())
    if (p.rule.is_closed_form()) closed.push_back(p);
  return closed;
}

INSTANTIATE_TEST_SUITE_P(Table, ClosedForm, ::testing::ValuesIn(closed_forms()),
                         [](const auto& named) { return std::string(named.param.name); });

TEST(Partitions, WithoutAClosedFormSaySo) {
  EXPECT_EQ(closed_forms().size(), partitions().size() - 1);
  testing::expect_error<Unsupported>(
      [] {
        find_partition("balanced").shard(PackedLayout({0, 4}), 2, 0);
      },
      {"partition=\"balanced\" has no closed form", "Nearest supported", "\"zigzag\""});
}

TEST(Partitions, AreTheSixOfTheTable) {
  std::vector<std::string> names;
  for (const NamedPartition& p : partitions()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"contiguous", "zigzag", "striped", "whole_pack",
                                             "whole_pack_zigzag", "balanced"}));
}

TEST(Partitions, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  testing::expect_error<InvalidArgument>([] { find_partition("zig-zag"); },
                                         {"partition=\"zig-zag\" is unknown", "\"contiguous\"",
                                          "\"zigzag\"", "\"whole_pack_zigzag\"", "\"balanced\""});
}

// Sizes of all chunks that `sizes` cuts differ by at most `most`.
void expect_balanced(const Ints& sizes, int most) {
  const auto [low, high] = std::minmax_element(sizes.begin(), sizes.end());
  ASSERT_LE(*high - *low, most);
}

TEST(Partitions, ChunksDifferByAtMostARow) {
  for (int cp_size = 1; cp_size <= 9; ++cp_size)
    for (int rows = 0; rows <= 40; ++rows) {
      for (const NamedPartition& partition : partitions()) {
        Ints sizes;
        for (int rank = 0; rank < cp_size; ++rank)
          sizes.push_back(
              num_rows(testing::shard_of(partition, one_sequence(rows), cp_size, rank)));
        expect_balanced(sizes, partition.rule.parts);
      }
    }
}

TEST(Cut, PartsFollowEachOtherAndDifferByAtMostARow) {
  for (const int length : {0, 1, 7, 40, 2147483647})
    for (int n = 1; n <= 18; ++n) {
      EXPECT_EQ(cut(length, n, 0), 0);
      EXPECT_EQ(cut(length, n, n), length);
      for (int i = 0; i < n; ++i) {
        const int size = cut(length, n, i + 1) - cut(length, n, i);
        EXPECT_TRUE(size == length / n || size == length / n + 1);
      }
    }
}

// A column of the table against what it says: causal work of one sequence whose chunks divide, and
// are whole blocks of 128.
TEST(Partitions, BalanceCausalWorkWhereTheTableSaysSo) {
  const PackedLayout layout({0, 4096});
  for (const NamedPartition& partition : partitions()) {
    Ints pairs;
    for (int rank = 0; rank < 4; ++rank) {
      pairs.push_back(0);
      for (const int pos : positions(testing::shard_of(partition, layout, 4, rank), 0))
        pairs.back() += pos + 1;
    }
    const auto [least, most] = std::minmax_element(pairs.begin(), pairs.end());
    EXPECT_EQ(partition.balances_causal, *most < 1.05 * *least) << partition.name;
  }
}

TEST(Partitions, OfRuleHaveNoMorePartsThanTheTableSays) {
  for (const NamedPartition& partition : closed_forms())
    for (int rows = 0; rows <= 40; ++rows)
      for (int rank = 0; rank < 3; ++rank) {
        const Shard shard = partition.shard(one_sequence(rows), 3, rank);
        EXPECT_LE(static_cast<int>(shard.size()), partition.rule.parts) << partition.name;
        for (const Segment& s : shard)
          EXPECT_TRUE(s.stride == 1 || !partition.rule.of_stream) << partition.name;
      }
}

TEST(Contiguous, RanksOwnRunsInRankOrder) {
  for (int rows = 0; rows <= 20; ++rows) {
    Ints all;
    for (int rank = 0; rank < 3; ++rank)
      for (const int pos : positions(contiguous(one_sequence(rows), 3, rank), 0))
        all.push_back(pos);
    EXPECT_EQ(static_cast<int>(all.size()), rows);
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  }
}

TEST(Contiguous, CutsEachSequenceByItself) {
  const PackedLayout layout({0, 5, 9});
  EXPECT_EQ(contiguous(layout, 2, 0), (Shard{{0, 0, 1, 0, 2}, {1, 0, 1, 2, 2}}));
  EXPECT_EQ(contiguous(layout, 2, 1), (Shard{{0, 2, 1, 0, 3}, {1, 2, 1, 3, 2}}));
}

TEST(Striped, DealsPositionsLikeCards) {
  for (int cp_size = 1; cp_size <= 5; ++cp_size)
    for (int rows = 0; rows <= 20; ++rows)
      for (int rank = 0; rank < cp_size; ++rank) {
        Ints want;
        for (int pos = 0; pos < rows; ++pos)
          if (pos % cp_size == rank) want.push_back(pos);
        EXPECT_EQ(positions(striped(one_sequence(rows), cp_size, rank), 0), want);
      }
}

TEST(Striped, ARankBeyondTheLastCardOwnsNothing) {
  EXPECT_EQ(striped(PackedLayout({0, 2, 5}), 4, 3), Shard{});
  EXPECT_EQ(striped(PackedLayout({0, 2, 5}), 4, 2), (Shard{{1, 2, 4, 0, 1}}));
}

// Transformer Engine: chunk c of 2*cp_size goes to rank c, or 2*cp_size-1-c in the second half.
TEST(Zigzag, IsTransformerEnginesOrderWhereChunksDivide) {
  const PackedLayout layout({0, 8, 16, 24, 40});
  const Ints long_sequence[] = {{0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}};
  for (int rank = 0; rank < 4; ++rank) {
    const Shard shard = zigzag(layout, 4, rank);
    for (int seq = 0; seq < 3; ++seq) EXPECT_EQ(positions(shard, seq), (Ints{rank, 7 - rank}));
    EXPECT_EQ(positions(shard, 3), long_sequence[rank]);
  }
}

TEST(Zigzag, IsTransformerEnginesRuleForAnyLengthThatDivides) {
  for (int cp_size = 1; cp_size <= 5; ++cp_size)
    for (int chunk_rows = 1; chunk_rows <= 4; ++chunk_rows) {
      const int rows = 2 * cp_size * chunk_rows;
      for (int rank = 0; rank < cp_size; ++rank) {
        Ints want;
        for (int x = 0; x < 2 * chunk_rows; ++x)
          want.push_back(x < chunk_rows ? rank * chunk_rows + x
                                        : (2 * cp_size - 1 - rank) * chunk_rows + x - chunk_rows);
        EXPECT_EQ(positions(zigzag(one_sequence(rows), cp_size, rank), 0), want);
      }
    }
}

// Chunk c of any length begins at floor(c * rows / (2 * cp_size)), for numbers of any size.
void expect_chunk_and_mirror(int rows, int cp_size, int rank) {
  const int64_t chunks = 2 * int64_t{cp_size}, mirror = chunks - 1 - rank;
  const auto begin = [&](int64_t c) { return static_cast<int>(c * rows / chunks); };
  const Pieces own = Zigzag::pieces(rows, cp_size, rank);
  ASSERT_EQ(own.first, (Interval{begin(rank), begin(rank + 1)})) << rows << ", " << cp_size;
  ASSERT_EQ(own.second, (Interval{begin(mirror), begin(mirror + 1)})) << rows << ", " << cp_size;
  ASSERT_EQ(own.stride, 1);
}

TEST(Zigzag, IsTheCutsOfAnyLength) {
  for (int cp_size = 1; cp_size <= 9; ++cp_size)
    for (int rows = 0; rows <= 100; ++rows)
      for (int rank = 0; rank < cp_size; ++rank) expect_chunk_and_mirror(rows, cp_size, rank);
  testing::Random random(12);
  for (int i = 0; i < 100'000; ++i) {
    const int cp_size = random.integer(1, 32'768 >> random.integer(0, 15));
    const int rows = random.integer(0, 2'147'483'647 >> random.integer(0, 30));
    expect_chunk_and_mirror(rows, cp_size, random.integer(0, cp_size - 1));
  }
  for (const int rank : {0, 999, 32'767}) expect_chunk_and_mirror(2'147'483'647, 32'768, rank);
}

TEST(Zigzag, FindsTheOwnerOfEveryPosition) {
  for (int cp_size = 1; cp_size <= 9; ++cp_size)
    for (int rows = 0; rows <= 100; ++rows)
      for (int rank = 0; rank < cp_size; ++rank)
        for (const int pos : positions(zigzag(one_sequence(rows), cp_size, rank), 0))
          ASSERT_EQ(Zigzag::owner(rows, cp_size, pos), rank) << rows << " rows, position " << pos;
  const int rows = 2'147'483'647;
  for (const int rank : {0, 1, 500, 999}) {
    const Pieces own = Zigzag::pieces(rows, 1000, rank);
    for (const int pos : {own.first.begin, own.first.end - 1, own.second.begin, own.second.end - 1})
      EXPECT_EQ(Zigzag::owner(rows, 1000, pos), rank) << pos;
  }
}

TEST(Zigzag, OwnsPaddingToo) {  // 5 of 8 and 7 of 8 rows hold tokens
  const PackedLayout layout({0, 5, 12}, {0, 8, 16});
  EXPECT_EQ(zigzag(layout, 2, 0),
            (Shard{{0, 0, 1, 0, 2}, {0, 6, 1, 2, 2}, {1, 0, 1, 4, 2}, {1, 6, 1, 6, 2}}));
  EXPECT_EQ(zigzag(layout, 2, 1), (Shard{{0, 2, 1, 0, 4}, {1, 2, 1, 4, 4}}));
}

TEST(Zigzag, SharesCausalWorkEquallyWhereChunksDivide) {
  const int rows = 48;
  for (const int cp_size : {2, 3, 4, 6, 8}) {
    for (int rank = 0; rank < cp_size; ++rank) {
      int pairs = 0;
      for (const int pos : positions(zigzag(one_sequence(rows), cp_size, rank), 0))
        pairs += pos + 1;
      EXPECT_EQ(pairs, rows * (rows + 1) / 2 / cp_size);
    }
  }
}

TEST(Zigzag, ASequenceOfOneRowHasOneOwner) {
  EXPECT_EQ(zigzag(one_sequence(1), 2, 0), (Shard{{0, 0, 1, 0, 1}}));  // the last chunk is rank 0's
  EXPECT_EQ(zigzag(one_sequence(1), 2, 1), Shard{});
}

// Three sequences of 3, 5 and 2 rows: the stream 0 0 0 1 1 1 1 1 2 2.
TEST(WholePack, CutsTheStreamAndIgnoresWhereSequencesEnd) {
  const PackedLayout layout({0, 3, 8, 10});
  EXPECT_EQ(whole_pack(layout, 3, 0), (Shard{{0, 0, 1, 0, 3}}));
  EXPECT_EQ(whole_pack(layout, 3, 1), (Shard{{1, 0, 1, 0, 3}}));
  EXPECT_EQ(whole_pack(layout, 3, 2), (Shard{{1, 3, 1, 0, 2}, {2, 0, 1, 2, 2}}));
}

TEST(WholePack, PassesOverEmptySequences) {
  const PackedLayout layout({0, 0, 3, 3, 3, 4, 4});
  EXPECT_EQ(whole_pack(layout, 2, 0), (Shard{{1, 0, 1, 0, 2}}));
  EXPECT_EQ(whole_pack(layout, 2, 1), (Shard{{1, 2, 1, 0, 1}, {4, 0, 1, 1, 1}}));
}

TEST(WholePack, MoreRanksThanRowsLeaveSomeWithNothing) {
  const PackedLayout layout({0, 1, 2});
  Ints rows;
  for (int rank = 0; rank < 5; ++rank) rows.push_back(num_rows(whole_pack(layout, 5, rank)));
  EXPECT_EQ(rows, (Ints{0, 0, 1, 0, 1}));
}

TEST(WholePackZigzag, OwnsAChunkOfTheStreamAndItsMirrorImage) {
  const PackedLayout layout({0, 3, 8, 10});  // rows 0-1, 2-4, 5-6, 7-9
  EXPECT_EQ(whole_pack_zigzag(layout, 2, 0),
            (Shard{{0, 0, 1, 0, 2}, {1, 4, 1, 2, 1}, {2, 0, 1, 3, 2}}));
  EXPECT_EQ(whole_pack_zigzag(layout, 2, 1), (Shard{{0, 2, 1, 0, 1}, {1, 0, 1, 1, 4}}));
}

TEST(WholePackZigzag, IsZigzagForOneSequence) {
  for (int rows = 0; rows <= 40; ++rows)
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(all_positions(whole_pack_zigzag(one_sequence(rows), 3, rank)),
                all_positions(zigzag(one_sequence(rows), 3, rank)));
}

}  // namespace
}  // namespace ringside
