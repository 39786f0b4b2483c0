// Tiles cover exactly the visible pairs of what is resident. Pairs are found again, one by one,
// from Mask::allows.
#include "reference/plan/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using Pairs = std::map<std::tuple<int, int, int>, int>;  // (sequence, query, key) -> how often

template <typename Visit>  // visit(query position, key position)
void for_each_allowed(const Problem& problem, const Segment& q, const Segment& k, Visit visit) {
  const int len_q = problem.layout_q.len(q.seq), len_k = problem.layout_k.len(q.seq);
  for (int i = 0; i < q.len; ++i)
    for (int j = 0; j < k.len; ++j) {
      const int q_pos = q.pos + i * q.stride, k_pos = k.pos + j * k.stride;
      if (problem.mask.allows(q_pos, k_pos, len_q, len_k)) visit(q_pos, k_pos);
    }
}

Pairs pairs_of_shards(const Problem& problem, const Shard& q, const Shard& k) {
  Pairs pairs;
  for (const Segment& a : q)
    for (const Segment& b : k)
      if (a.seq == b.seq)
        for_each_allowed(problem, a, b, [&](int x, int y) { ++pairs[{a.seq, x, y}]; });
  return pairs;
}

Pairs pairs_of_tiles(const Problem& problem, const std::vector<Tile>& tiles) {
  Pairs pairs;
  for (const auto& [q, k] : tiles)
    for_each_allowed(problem, q, k, [&](int x, int y) { ++pairs[{q.seq, x, y}]; });
  return pairs;
}

// One sequence, of as many queries as keys.
Problem one_sequence(int tokens, const Mask& mask) {
  const PackedLayout layout({0, tokens});
  return {layout, layout, mask, 1, 1};
}

class RandomTiles : public ::testing::Test {
 protected:
  template <typename Visit>  // visit(problem, q shard, k shard, tiles)
  void for_each(Visit visit) {
    testing::Random random(5);
    for (int i = 0; i < testing::cases(400); ++i) {
      const Problem problem = testing::random_problem(random);
      const int cp_size = random.integer(1, 4);
      const auto draw = [&](const PackedLayout& layout) {
        const auto& partition = testing::random_partition(random);
        return testing::shard_of(partition, layout, cp_size, random.integer(0, cp_size - 1));
      };
      const Shard q = draw(problem.layout_q), k = draw(problem.layout_k);
      visit(problem, q, k, make_tiles(problem, q, k));
    }
  }
};

TEST_F(RandomTiles, HoldEveryVisiblePairOnce) {
  for_each([](const Problem& problem, const Shard& q, const Shard& k, const auto& tiles) {
    ASSERT_EQ(pairs_of_tiles(problem, tiles), pairs_of_shards(problem, q, k));
  });
}

TEST_F(RandomTiles, EachSeeSomething) {
  for_each([](const Problem& problem, const Shard&, const Shard&, const auto& tiles) {
    for (const Tile& tile : tiles) ASSERT_FALSE(pairs_of_tiles(problem, {tile}).empty());
  });
}

TEST_F(RandomTiles, AreCountedByVisiblePairs) {
  for_each([](const Problem& problem, const Shard& q, const Shard& k, const auto&) {
    for (const Segment& a : q)
      for (const Segment& b : k) {  // also those that see nothing
        if (a.seq != b.seq) continue;
        const Tile tile{a, b};
        ASSERT_EQ(visible_pairs(problem, tile),
                  static_cast<int64_t>(pairs_of_tiles(problem, {tile}).size()));
      }
  });
}

TEST_F(RandomTiles, AreResidentSegmentsInQueryOrder) {
  for_each([](const Problem&, const Shard& q, const Shard& k, const auto& tiles) {
    int row = 0;
    for (const Tile& tile : tiles) {
      ASSERT_NE(std::find(q.begin(), q.end(), tile.q), q.end());
      ASSERT_NE(std::find(k.begin(), k.end(), tile.k), k.end());
      ASSERT_GE(tile.q.row, row);
      row = tile.q.row;
    }
  });
}

TEST_F(RandomTiles, DoNotDependOnTheOrderOfResidentKeys) {
  for_each([](const Problem& problem, const Shard& q, const Shard& k, const auto& tiles) {
    Shard reversed(k.rbegin(), k.rend());
    ASSERT_EQ(pairs_of_tiles(problem, make_tiles(problem, q, reversed)),
              pairs_of_tiles(problem, tiles));
  });
}

// Every row that some query sees, by the definition, and between the first and the last of a pair
// of segments every row.
TEST_F(RandomTiles, RowsSeenAreThoseOfTheDefinition) {
  for_each([](const Problem& problem, const Shard& q, const Shard& k, const auto&) {
    std::vector<bool> want(num_rows(k));
    for (const Segment& a : q)
      for (const Segment& b : k) {
        std::vector<int> met;
        if (a.seq == b.seq)
          for_each_allowed(problem, a, b,
                           [&](int, int key) { met.push_back(b.row + (key - b.pos) / b.stride); });
        if (met.empty()) continue;
        const auto [first, last] = std::ranges::minmax_element(met);
        std::fill(want.begin() + *first, want.begin() + *last + 1, true);
      }
    std::vector<bool> got(num_rows(k));
    int end = -1;
    for (const Interval& run : rows_seen(problem, q, k)) {
      ASSERT_GT(run.size(), 0);
      ASSERT_GT(run.begin, end) << "runs rise, and lie apart";
      end = run.end;
      std::fill(got.begin() + run.begin, got.begin() + run.end, true);
    }
    ASSERT_EQ(got, want);
  });
}

TEST(Tiles, CausalZigzagKeepsTheLowerTriangleOfChunks) {
  const Segment first{0, 0, 1, 0, 2}, last{0, 6, 1, 2, 2}, middle{0, 2, 1, 0, 4};
  const Problem problem = one_sequence(8, Mask::causal());
  EXPECT_EQ(make_tiles(problem, {first, last}, {first, last}),
            (std::vector<Tile>{{first, first}, {last, first}, {last, last}}));
  EXPECT_EQ(make_tiles(problem, {first, last}, {middle}), (std::vector<Tile>{{last, middle}}));
}

TEST(Tiles, APairOfSegmentsThatSeesNothingMakesNone) {
  const Segment low{0, 0, 1, 0, 4}, high{0, 4, 1, 0, 4};
  EXPECT_TRUE(make_tiles(one_sequence(8, Mask::causal()), {low}, {high}).empty());
  EXPECT_TRUE(make_tiles(one_sequence(8, Mask::chunked(4)), {high}, {low}).empty());
  EXPECT_TRUE(make_tiles(one_sequence(8, Mask::sliding_window(0, 0)), {high}, {low}).empty());
  EXPECT_TRUE(make_tiles(one_sequence(4, Mask::full()), {high}, {low}).empty());  // padding asks
  EXPECT_TRUE(
      make_tiles(one_sequence(4, Mask::full()), {low}, {high}).empty());  // padding is asked
}

TEST(Tiles, BoundsMayMeetThoughNoRowSeesAKey) {  // queries 0 and 8 see keys 0 and 8; keys are 2, 6
  const Segment q{0, 0, 8, 0, 2}, k{0, 2, 4, 0, 2};
  EXPECT_TRUE(make_tiles(one_sequence(9, Mask::sliding_window(0, 0)), {q}, {k}).empty());
}

TEST(Tiles, SequencesNeverMeet) {
  const PackedLayout layout({0, 3, 6});
  const Problem problem{layout, layout, Mask::full(), 1, 1};
  EXPECT_TRUE(make_tiles(problem, {{0, 0, 1, 0, 3}}, {{1, 0, 1, 0, 3}}).empty());
}

}  // namespace
}  // namespace ringside
