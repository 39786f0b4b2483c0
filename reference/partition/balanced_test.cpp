// The balanced partition: rows, work and pieces of packs of every shape, and the same from anybody.
#include "reference/partition/balanced.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/partition/block_costs.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

Problem pack(const std::vector<int32_t>& lengths, const Mask& mask = Mask::causal()) {
  const PackedLayout layout = PackedLayout::from_lengths(lengths);
  return {layout, layout, mask, 1, 1};
}

// Blocks of queries by blocks of keys in which some query sees some key, pair by pair.
int64_t blocks_by_definition(const Problem& problem, int seq, Interval rows) {
  std::set<std::pair<int, int>> blocks;
  const int len_q = problem.layout_q.len(seq), len_k = problem.layout_k.len(seq);
  for (int q = rows.begin; q < std::min(rows.end, len_q); ++q)
    for (int k = 0; k < len_k; ++k)
      if (problem.mask.allows(q, k, len_q, len_k))
        blocks.insert({(q - rows.begin) / kBlockRows, k / kBlockRows});
  return static_cast<int64_t>(blocks.size());
}

TEST(BlockCosts, AreThoseOfTheDefinition) {
  Random random(83);
  for (int number = 0; number < testing::cases(60); ++number) {
    Problem problem = testing::random_problem(random);
    const std::vector<int32_t> q{0, random.integer(0, 700)}, k{0, random.integer(0, 700)};
    problem.layout_q = PackedLayout(q, {0, q[1] + random.integer(0, 200)});
    problem.layout_k = random.coin() ? problem.layout_q : PackedLayout(k);
    if (random.coin()) problem.mask.left = random.integer(100, 300);
    if (random.one_in(3)) problem.mask.chunk = random.integer(100, 300);
    const BlockCosts costs(problem);
    const int rows = costs.rows(0);
    ASSERT_EQ(costs.all_work(), blocks_by_definition(problem, 0, {0, rows}));
    const int begin = random.integer(0, rows), end = random.integer(begin, rows);
    const int whole = begin / kBlockRows * kBlockRows;
    ASSERT_EQ(costs.of(0, {begin, end}), blocks_by_definition(problem, 0, {begin, end}));
    ASSERT_EQ(costs.of(0, {whole, end}), blocks_by_definition(problem, 0, {whole, end}));
    ASSERT_EQ(costs.of(0, {whole, rows}), blocks_by_definition(problem, 0, {whole, rows}));
  }
}

// What ranks have to do, and how much of it there is at least.
struct Shares {
  double work = 0, rows = 0;  // the busiest rank's over the mean of the uncut pack
  int pieces = 0;
};

Shares shares_of(const Problem& problem, int cp_size) {
  const BlockCosts costs(problem);
  int64_t most_work = 0, most_rows = 0;
  Shares shares;
  for (const Shard& shard : deal_balanced(problem, cp_size).q) {
    int64_t work = 0;
    for (const Segment& s : shard) work += costs.of(s.seq, {s.pos, s.pos + s.len});
    most_work = std::max(most_work, work);
    most_rows = std::max<int64_t>(most_rows, num_rows(shard));
    shares.pieces += static_cast<int>(shard.size());
  }
  const auto over_mean = [&](int64_t most, int64_t all) {
    return static_cast<double>(most * cp_size) / static_cast<double>(std::max<int64_t>(all, 1));
  };
  shares.work = over_mean(most_work, costs.all_work());
  shares.rows = over_mean(most_rows, costs.all_rows());
  return shares;
}

std::vector<int32_t> log_normal(int documents, double median, unsigned seed) {
  std::mt19937 engine(seed);
  std::lognormal_distribution<double> draw(std::log(median), 1.1);
  std::vector<int32_t> lengths;
  for (int i = 0; i < documents; ++i)
    lengths.push_back(1 + static_cast<int32_t>(std::min(draw(engine), 200'000.0)));
  return lengths;
}

std::vector<int32_t> giant_among(int others, int32_t length) {
  std::vector<int32_t> lengths(others, length);
  lengths.insert(lengths.begin() + others / 2, 65'536);
  return lengths;
}

struct Pack {
  const char* name;
  std::vector<int32_t> lengths;
};

const std::vector<Pack>& packs() {
  static const std::vector<Pack> all{
      {"LogNormal", log_normal(108, 664, 3)},          {"ManyLogNormal", log_normal(700, 880, 5)},
      {"AGiantAmongThousands", giant_among(3000, 40)}, {"AGiantAmongLonger", giant_among(60, 700)},
      {"Equal", std::vector<int32_t>(64, 4096)},       {"OneSequence", {131'072}},
      {"FewerThanRanks", {65'536, 32'768, 16'384}},
  };
  return all;
}

class BalancedPack : public ::testing::TestWithParam<Pack> {};

TEST_P(BalancedPack, SharesRowsAndWorkUnderEveryMask) {
  for (const Mask& mask : {Mask::causal(), Mask::full(), Mask::sliding_window(1024, 0),
                           Mask::chunked(8192), Mask::causal(Align::bottom_right)})
    for (const int cp_size : {1, 2, 8, 32, 64}) {
      const Shares shares = shares_of(pack(GetParam().lengths, mask), cp_size);
      EXPECT_LE(shares.rows, 1.01) << "cp_size " << cp_size;
      EXPECT_LE(shares.work, 1.06) << "cp_size " << cp_size << ", left " << mask.left;
    }
}

INSTANTIATE_TEST_SUITE_P(Each, BalancedPack, ::testing::ValuesIn(packs()),
                         [](const auto& pack) { return std::string(pack.param.name); });

TEST(Balanced, CutsNothingWhereWholeDocumentsBalance) {
  EXPECT_EQ(shares_of(pack(std::vector<int32_t>(16, 4096)), 4).pieces, 16);
  EXPECT_EQ(shares_of(pack(std::vector<int32_t>(5000, 20)), 8).pieces, 5000);
}

TEST(Balanced, CutsOneSequenceInDualChunks) {
  for (const int cp_size : {2, 4, 8}) {
    const auto shards = deal_balanced(pack({128 * 16 * cp_size}), cp_size).q;
    std::vector<std::vector<int>> chunks;
    for (const Shard& shard : shards) {
      int sum = 0;  // of the numbers of its chunks
      for (const Segment& s : shard)
        for (int row = 0; row < s.len; row += 128 * 8) sum += (s.pos + row) / (128 * 8);
      EXPECT_EQ(sum, 2 * cp_size - 1) << "a chunk and its mirror image";
    }
  }
}

TEST(Balanced, CutsAtBlocksWhereRoomAllows) {
  const auto shards = deal_balanced(pack(log_normal(300, 2000, 7)), 4).q;
  int odd = 0;
  for (const Shard& shard : shards)
    for (const Segment& s : shard) odd += s.pos % kBlockRows != 0;
  EXPECT_LE(odd, 4) << "one a rank, to fill its last rows";
}

TEST(Balanced, LeavesShortDocumentsWhole) {
  const auto lengths = log_normal(700, 880, 9);
  std::map<int, int> pieces;
  for (const Shard& shard : deal_balanced(pack(lengths), 8).q)
    for (const Segment& s : shard) ++pieces[s.seq];
  int cut = 0;
  for (const auto& [seq, n] : pieces) cut += n > 1 && lengths[seq] <= 4 * kBlockRows;
  EXPECT_LE(cut, 8) << "at most one a rank, to fill its last rows";
}

TEST(Balanced, DependsOnTokensToo) {  // padding is owned, but costs nothing
  const Problem padded{PackedLayout({0, 4096, 4224, 4352, 4480}, {0, 4096, 8192, 12288, 16384}),
                       PackedLayout({0, 4096, 4224, 4352, 4480}, {0, 4096, 8192, 12288, 16384}),
                       Mask::causal(), 1, 1};
  EXPECT_LE(shares_of(padded, 2).work, 1.05);
  EXPECT_LE(shares_of(padded, 2).rows, 1.01);
}

// What it is, in full, for a pack that a reader can follow: ties are broken by index.
TEST(Balanced, BreaksTiesByIndex) {
  const auto shards = deal_balanced(pack({256, 256, 256, 256}), 2).q;
  EXPECT_EQ(shards[0], (Shard{{0, 0, 1, 0, 256}, {2, 0, 1, 256, 256}}));
  EXPECT_EQ(shards[1], (Shard{{1, 0, 1, 0, 256}, {3, 0, 1, 256, 256}}));
}

TEST(Balanced, DealsCostliestToTheRankThatLacksMost) {
  const auto shards = deal_balanced(pack({128, 1024, 128, 1024, 128, 128}), 2).q;
  EXPECT_EQ(shards[0], (Shard{{0, 0, 1, 0, 128}, {1, 0, 1, 128, 1024}, {4, 0, 1, 1152, 128}}));
  EXPECT_EQ(shards[1], (Shard{{2, 0, 1, 0, 128}, {3, 0, 1, 128, 1024}, {5, 0, 1, 1152, 128}}));
}

TEST(Balanced, RowsDifferByAtMostOneInSmallPacks) {
  Random random(89);
  for (int number = 0; number < 300; ++number) {
    const PackedLayout layout = testing::random_layout(random, random.integer(0, 6));
    const int cp_size = random.integer(1, 9);
    if (layout.num_rows() >= 100 * cp_size) continue;  // a hundredth of a share is a row
    int least = layout.num_rows(), most = 0;
    for (const Shard& shard : deal_balanced({layout, layout, Mask::causal(), 1, 1}, cp_size).q) {
      least = std::min(least, num_rows(shard));
      most = std::max(most, num_rows(shard));
    }
    ASSERT_LE(most - least, 1);
  }
}

TEST(Balanced, GivesEveryRowOfTinyPacksToSomeRankUnderEveryMask) {
  const std::vector<std::vector<int32_t>> tiny{{},         {0}, {0, 0}, {1}, {0, 1, 0, 1, 1, 0},
                                               {1, 0, 300}};
  for (const auto& lengths : tiny)
    for (const Mask& mask : {Mask::causal(), Mask::full(), Mask::sliding_window(0, 0),
                             Mask::chunked(1), Mask::causal(Align::bottom_right)})
      for (const int cp_size : {1, 2, 7, 64}) {
        int rows = 0, most = 0;
        for (const Shard& shard : deal_balanced(pack(lengths, mask), cp_size).q) {
          rows += num_rows(shard);
          most = std::max(most, num_rows(shard));
        }
        const int all = pack(lengths).layout_q.num_rows();
        EXPECT_EQ(rows, all);
        const int even = (all + cp_size - 1) / cp_size;
        EXPECT_LE(most, std::max(even, all * 101 / (100 * cp_size)))
            << all << " rows over " << cp_size;
      }
}

TEST(Balanced, KeysOfOtherLengthsGoWithTheirQueries) {
  const PackedLayout q = PackedLayout::from_lengths({4096, 300, 0, 500, 0});
  const PackedLayout k = PackedLayout::from_lengths({8192, 100, 7, 0, 9});
  const Problem problem{q, k, Mask::causal(Align::bottom_right), 1, 1};
  const OwnedRows owned = deal_balanced(problem, 4);
  std::vector<int> keys_of_seq(5);
  for (int rank = 0; rank < 4; ++rank)
    for (const Segment& s : owned.k[rank]) {
      keys_of_seq[s.seq] += s.len;
      if (q.len(s.seq) == 0) continue;
      const auto same = [&](const Segment& own) { return own.seq == s.seq; };
      EXPECT_TRUE(std::ranges::any_of(owned.q[rank], same)) << "rank " << rank << " has no query";
      EXPECT_EQ(s.pos % kBlockRows, 0);
    }
  EXPECT_EQ(keys_of_seq, (std::vector<int>{8192, 100, 7, 0, 9}));
  for (int rank = 0; rank < 4; ++rank) {  // twice as many keys at twice the place
    const auto& first = owned.q[rank][0];
    if (first.seq == 0 && first.pos % kBlockRows == 0) {
      EXPECT_EQ(owned.k[rank][0].pos, 2 * first.pos);
    }
  }
}

TEST(Balanced, KeysOfTheSameLengthsLieWhereTheirQueriesLie) {
  const std::vector<int32_t> cu{0, 1000, 1003, 9000}, padded{0, 1000, 1003, 9000};
  const Problem other_sequences_differ{PackedLayout(cu), PackedLayout({0, 1000, 1003, 9700}),
                                       Mask::causal(), 1, 1};
  const OwnedRows owned = deal_balanced(other_sequences_differ, 3);
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<std::pair<int, int>> q, k;
    for (const Segment& s : owned.q[rank])
      if (s.seq < 2) q.emplace_back(s.seq, s.pos);
    for (const Segment& s : owned.k[rank])
      if (s.seq < 2) k.emplace_back(s.seq, s.pos);
    EXPECT_EQ(q, k);
  }
}

}  // namespace
}  // namespace ringside
