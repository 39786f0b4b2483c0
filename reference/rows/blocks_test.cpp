// Blocks counted against every pair of every block, by Mask::allows.
#include "reference/rows/blocks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/plan/tiles.h"
#include "reference/support/errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

struct BlockedTile {
  SequenceMask mask;
  Segment q, k;
  BlockSize size;

  bool sees(int i, int j) const {
    return mask.mask.allows(q.position(i), k.position(j), mask.len_q, mask.len_k);
  }
  int valid(const Segment& s, int length) const {
    int rows = 0;
    while (rows < s.len && s.position(rows) < length) ++rows;
    return rows;
  }
  int rows_q() const { return valid(q, mask.len_q); }
  int rows_k() const { return valid(k, mask.len_k); }

  std::string text() const {
    const auto segment = [](const Segment& s) { return concat(s.pos, "+", s.stride, "*", s.len); };
    return concat("window ", mask.mask.left, " ", mask.mask.right, " chunk ", mask.mask.chunk,
                  " align ", static_cast<int>(mask.mask.align), " lengths ", mask.len_q, " ",
                  mask.len_k, " q ", segment(q), " k ", segment(k), " blocks ", size.q, "x",
                  size.k);
  }
};

BlockCounts counted_pair_by_pair(const BlockedTile& c) {
  BlockCounts counts;
  for (int row = 0; row < c.rows_q(); row += c.size.q) {
    const int64_t before = counts.blocks;
    for (int column = 0; column < c.rows_k(); column += c.size.k) {
      bool some = false, all = true;
      for (int i = row; i < std::min(row + c.size.q, c.rows_q()); ++i)
        for (int j = column; j < std::min(column + c.size.k, c.rows_k()); ++j)
          (c.sees(i, j) ? some : all) = c.sees(i, j);
      counts.blocks += some;
      counts.partial_blocks += some && !all;
    }
    counts.visits += counts.blocks > before;
  }
  return counts;
}

void expect_counts(const BlockedTile& c) {
  const BlockCounts got = count_blocks(c.mask, c.q, c.k, c.size), want = counted_pair_by_pair(c);
  EXPECT_EQ(got.blocks, want.blocks) << c.text();
  EXPECT_EQ(got.partial_blocks, want.partial_blocks) << c.text();
  EXPECT_EQ(got.visits, want.visits) << c.text();
}

BlockedTile random_case(Random& random) {
  const auto segment = [&] {
    return Segment{0, random.integer(0, 12), random.choice<int>({1, 1, 1, 2, 3, 6, 7}), 5,
                   random.integer(1, 40)};
  };
  BlockedTile c{{testing::random_mask(random), random.integer(0, 70), random.integer(0, 70)},
                segment(),
                segment(),
                {random.integer(1, 9), random.integer(1, 9)}};
  if (random.coin()) c.k.stride = c.q.stride;  // as partitions have it
  return c;
}

TEST(Blocks, AreThoseThatHoldAVisiblePair) {
  Random random(83);
  for (int i = 0; i < testing::cases(40'000) && !::testing::Test::HasFailure(); ++i) {
    if (i % 100 == 0) random.begin_case();
    const BlockedTile c = random_case(random);
    expect_counts(c);
  }
}

TEST(Blocks, OfEverySmallMaskAndSegment) {
  for (const Align align : {Align::top_left, Align::bottom_right})
    for (const int left : {-1, 0, 3})
      for (const int right : {-1, 0, 2})
        for (const int chunk : {0, 2, 5})
          for (const int stride : {1, 3})
            for (const int pos_q : {0, 5})
              for (const int pos_k : {0, 1, 5, 8})
                for (const int len_q : {0, 9, 13}) {
                  const BlockedTile c{{{left, right, chunk, align}, len_q, 12},
                                      {0, pos_q, stride, 0, 9},
                                      {0, pos_k, stride, 0, 7},
                                      {3, 2}};
                  expect_counts(c);
                }
}

TEST(Blocks, RunsOfSeenRowsHoldTheKeysThatSomeQuerySees) {
  Random random(89);
  for (int n = 0; n < testing::cases(20'000); ++n) {
    if (n % 100 == 0) random.begin_case();
    const BlockedTile c = random_case(random);
    std::vector<bool> seen(c.k.len), want(c.k.len);
    for_each_seen_run(c.mask, c.q, c.k, [&](Interval run) {
      for (int j = run.begin; j < run.end; ++j) seen[j] = true;
    });
    for (int i = 0; i < c.rows_q(); ++i)
      for (int j = 0; j < c.rows_k(); ++j)
        if (c.sees(i, j)) want[j] = true;
    ASSERT_EQ(seen, want) << c.text();
  }
}

TEST(Pairs, OfSegmentsAreThoseThatTheMaskAllows) {
  Random random(97);
  for (int n = 0; n < testing::cases(20'000); ++n) {
    if (n % 100 == 0) random.begin_case();
    const BlockedTile c = random_case(random);
    int64_t want = 0;
    for (int i = 0; i < c.rows_q(); ++i)
      for (int j = 0; j < c.rows_k(); ++j) want += c.sees(i, j);
    ASSERT_EQ(visible_pairs(c.mask, c.q, c.k), want) << c.text();
  }
}

TEST(Pairs, OfLongSegmentsAreCountedByTheChangesOfTheMask) {
  const int64_t n = 1 << 30;
  const Segment all{0, 0, 1, 0, 1 << 30};
  EXPECT_EQ(visible_pairs({Mask::causal(), 1 << 30, 1 << 30}, all, all), n * (n + 1) / 2);
  EXPECT_EQ(visible_pairs({Mask::sliding_window(9, 0), 1 << 30, 1 << 30}, all, all), 10 * n - 45);
}

TEST(Blocks, OfACausalDocumentByHand) {  // 300 tokens: blocks of 128, 128 and 44 rows
  const Segment all{0, 0, 1, 0, 300}, first{0, 0, 1, 0, 13}, last{0, 287, 1, 0, 13};
  const SequenceMask causal{Mask::causal(), 300, 300};
  EXPECT_EQ(count_blocks(causal, all, all), (BlockCounts{6, 3, 3}));
  EXPECT_EQ(count_blocks(causal, last, first), (BlockCounts{1, 0, 1})) << "short, all of it seen";
  EXPECT_EQ(count_blocks(causal, last, last), (BlockCounts{1, 1, 1}));
  EXPECT_EQ(count_blocks(causal, first, last), BlockCounts{});
  EXPECT_EQ(count_blocks({Mask::full(), 300, 300}, all, all), (BlockCounts{9, 0, 3}));
}

TEST(Blocks, PaddingBelongsToNone) {  // 200 of 256 rows are tokens
  const Segment rows{0, 0, 1, 0, 256};
  EXPECT_EQ(count_blocks({Mask::full(), 200, 100}, rows, rows), (BlockCounts{2, 0, 2}));
  EXPECT_EQ(count_blocks({Mask::full(), 0, 100}, rows, rows), BlockCounts{});
}

TEST(Blocks, OfLongSegmentsThatSeeEverythingAreCountedAtOnce) {
  const int n = (1 << 30) - 1;
  const Segment low{0, 0, 1, 0, n}, high{0, n, 1, 0, n};
  const int64_t blocks = int64_t{1} << 23;
  EXPECT_EQ(count_blocks({Mask::causal(), 2 * n, 2 * n}, high, low),
            (BlockCounts{blocks * blocks, 0, blocks}));
}

}  // namespace
}  // namespace ringside
