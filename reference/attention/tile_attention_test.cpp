// One tile against the definition: at and around the sizes of its inner blocks, cut anywhere, and
// with poison wherever it may not read.
#include "reference/attention/tile_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;
using testing::RandomCase;

// One sequence of one head whose positions lie in the rows in order; `padding` rows behind.
Problem one_sequence(int len_q, int len_k, const Mask& mask, int padding = 0) {
  return {PackedLayout({0, len_q}, {0, len_q + padding}),
          PackedLayout({0, len_k}, {0, len_k + padding}), mask, 1, 1};
}

In in(const Tensor& x) { return {x.data.data(), x.dim, x.dim}; }
Out out(Tensor& x) { return {x.data.data(), x.dim, x.dim}; }

struct Computed {  // what some tiles compute
  Tensor out, lse, dq, dk, dv;
  double max_logit = kNegInf;
};

Computed compute(const RandomCase& c, const std::vector<TileTask>& tasks) {
  Computed r{Tensor(c.q.rows, 1, c.v.dim, 0.0), Tensor(c.q.rows, 1, 1, kNegInf),
             Tensor(c.q.rows, 1, c.q.dim, 0.0), Tensor(c.k.rows, 1, c.k.dim, 0.0),
             Tensor(c.v.rows, 1, c.v.dim, 0.0), kNegInf};
  for (const TileTask& task : tasks)
    tile_forward(task, {in(c.q), in(c.k), in(c.v), out(r.out), out(r.lse), &r.max_logit});
  Tensor delta(c.q.rows, 1, 1, kPoison);
  for (int row = 0; row < c.problem.layout_q.len(0); ++row) {
    *delta.at(row, 0) = 0;
    for (int d = 0; d < c.v.dim; ++d)
      *delta.at(row, 0) += c.dout.at(row, 0)[d] * r.out.at(row, 0)[d];
  }
  for (const TileTask& task : tasks)
    tile_backward(task, {in(c.q), in(c.k), in(c.v), in(c.dout), in(r.lse), in(delta), out(r.dq),
                         out(r.dk), out(r.dv)});
  return r;
}

void expect_equal(const std::vector<double>& want, const Tensor& got, const char* what) {
  ASSERT_EQ(want.size(), got.data.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got.data[i]) continue;  // -inf too
    ASSERT_LE(std::abs(want[i] - got.data[i]), 1e-12 * std::max(1.0, std::abs(want[i])))
        << what << "[" << i << "]";
  }
}

void expect_definition(const RandomCase& c, const Computed& got) {
  const auto want = oracle::forward(c.definition(), c.arrays());
  const auto g = oracle::backward(c.definition(), c.arrays(), c.dout.data.data(), want);
  expect_equal(want.out, got.out, "out");
  expect_equal(want.lse, got.lse, "lse");
  expect_equal(want.max_logit, Tensor(1, 1, 1, got.max_logit), "max_logit");
  expect_equal(g.dq, got.dq, "dq");
  expect_equal(g.dk, got.dk, "dk");
  expect_equal(g.dv, got.dv, "dv");
}

// Sinks enter at the final merge, not in a tile.
RandomCase tile_case(Random& random, const Problem& problem) {
  AttentionOptions options = testing::random_options(random, problem);
  options.sinks.clear();
  return RandomCase(random, problem, options);
}

Segment all_rows(const PackedLayout& layout) { return {0, 0, 1, 0, layout.padded_len(0)}; }

std::vector<Mask> masks() {
  return {Mask::full(),
          Mask::causal(),
          Mask::causal(Align::bottom_right),
          Mask::sliding_window(70, 3),
          Mask::sliding_window(0, 0, Align::bottom_right),
          Mask::chunked(64),
          Mask{5, 2, 100, Align::bottom_right}};
}

class BlockSizes : public ::testing::TestWithParam<int> {};

TEST_P(BlockSizes, AgreeWithTheDefinition) {
  Random random(73);
  for (const int len_k : {1, 63, 64, 65, 127, 128, 129, 300})
    for (const Mask& mask : masks()) {
      const RandomCase c =
          tile_case(random, one_sequence(GetParam(), len_k, mask, 5));  // NaN in all padding
      const Tile tile{all_rows(c.problem.layout_q), all_rows(c.problem.layout_k)};
      expect_definition(c, compute(c, {{c.problem, tile, {0, tile.q.len}, c.options, 0}}));
      if (HasFailure()) FAIL() << "len_k " << len_k;
    }
}

INSTANTIATE_TEST_SUITE_P(Queries, BlockSizes, ::testing::Values(1, 63, 64, 65, 127, 128, 129, 300));

TEST(TileAttention, WithoutAMaskOneRowIsASoftmax) {
  Random random(79);
  const RandomCase c(random, one_sequence(1, 2, Mask::full()), {0.3, 0, {}, {}, {}});
  const Tile tile{all_rows(c.problem.layout_q), all_rows(c.problem.layout_k)};
  const Computed got = compute(c, {{c.problem, tile, {0, 1}, c.options, 0}});
  double score[2] = {0, 0};
  for (int k = 0; k < 2; ++k)
    for (int d = 0; d < c.q.dim; ++d) score[k] += 0.3 * c.q.at(0, 0)[d] * c.k.at(k, 0)[d];
  EXPECT_NEAR(*got.lse.at(0, 0), std::log(std::exp(score[0]) + std::exp(score[1])), 1e-13);
}

// Cuts a segment into a few runs.
std::vector<Segment> cut_up(Random& random, const Segment& whole) {
  std::vector<Segment> parts;
  for (int at = 0; at < whole.len;) {
    const int rows = random.integer(1, whole.len - at);
    parts.push_back({whole.seq, whole.pos + at, 1, whole.row + at, rows});
    at += rows;
  }
  return parts;
}

TEST(TileAttention, CutsMergeToTheWhole) {
  Random random(83);
  for (int i = 0; i < 60; ++i) {
    const RandomCase c =
        tile_case(random, one_sequence(random.integer(0, 150), random.integer(0, 150),
                                       random.choice(masks()), random.integer(0, 3)));
    std::vector<Tile> tiles;
    for (const Segment& q : cut_up(random, all_rows(c.problem.layout_q)))
      for (const Segment& k : cut_up(random, all_rows(c.problem.layout_k))) tiles.push_back({q, k});
    std::vector<TileTask> tasks;
    for (const Tile& tile : tiles) {
      const int middle = random.integer(0, tile.q.len);  // rows of a tile may be shared out, too
      tasks.push_back({c.problem, tile, {0, middle}, c.options, 0});
      tasks.push_back({c.problem, tile, {middle, tile.q.len}, c.options, 0});
    }
    expect_definition(c, compute(c, tasks));
    const std::vector<TileTask> backwards(tasks.rbegin(), tasks.rend());
    expect_definition(c, compute(c, backwards));
    if (HasFailure()) FAIL() << "case " << i;
  }
}

// Every stride-th position, the first ones first: the rows of each segment lie together.
TEST(TileAttention, StridedSegmentsMergeToTheWhole) {
  Random random(89);
  for (const int stride : {1, 2, 3, 7})
    for (const Mask& mask : masks()) {
      const RandomCase c = tile_case(random, one_sequence(90, 140, mask));
      RandomCase dealt = c;
      const auto deal = [&](const Tensor& from, Tensor& to) {
        std::vector<Segment> segments;
        for (int first = 0, row = 0; first < stride && first < from.rows; ++first) {
          segments.push_back({0, first, stride, row, 0});
          for (int pos = first; pos < from.rows; pos += stride, ++row, ++segments.back().len)
            std::copy(from.at(pos, 0), from.at(pos, 0) + from.dim, to.at(row, 0));
        }
        return segments;
      };
      const auto q_segments = deal(c.q, dealt.q), k_segments = deal(c.k, dealt.k);
      deal(c.v, dealt.v);
      deal(c.dout, dealt.dout);
      std::vector<Tile> tiles;
      for (const Segment& q : q_segments)
        for (const Segment& k : k_segments) tiles.push_back({q, k});
      std::vector<TileTask> tasks;
      for (const Tile& tile : tiles)
        tasks.push_back({c.problem, tile, {0, tile.q.len}, c.options, 0});
      const Computed got = compute(dealt, tasks);
      Computed back = got;  // in order of positions again
      const auto collect = [](const std::vector<Segment>& segments, const Tensor& from,
                              Tensor& to) {
        for (const Segment& s : segments)
          for (int i = 0; i < s.len; ++i)
            std::copy(from.at(s.row + i, 0), from.at(s.row + i, 0) + from.dim,
                      to.at(s.pos + i * s.stride, 0));
      };
      collect(q_segments, got.out, back.out);
      collect(q_segments, got.lse, back.lse);
      collect(q_segments, got.dq, back.dq);
      collect(k_segments, got.dk, back.dk);
      collect(k_segments, got.dv, back.dv);
      expect_definition(c, back);
      if (HasFailure()) FAIL() << "stride " << stride;
    }
}

TEST(TileAttention, ReadsOnlyTheKeysThatSomeRowSees) {
  Random random(97);
  RandomCase c(random, one_sequence(200, 200, Mask::sliding_window(4, 0)));
  const Computed whole =
      compute(c, {{c.problem, {{0, 0, 1, 0, 200}, {0, 0, 1, 0, 200}}, {0, 200}, c.options, 0}});
  for (int row = 0; row < 200; ++row)
    for (Tensor* x : {&c.k, &c.v})
      if (row < 96 || row >= 110) std::fill(x->at(row, 0), x->at(row, 0) + x->dim, kPoison);
  const Computed part =
      compute(c, {{c.problem, {{0, 0, 1, 0, 200}, {0, 0, 1, 0, 200}}, {100, 110}, c.options, 0}});
  for (int row = 0; row < 200; ++row) {
    const bool asked = 100 <= row && row < 110;
    for (int d = 0; d < c.v.dim; ++d)
      EXPECT_NEAR(part.out.at(row, 0)[d], asked ? whole.out.at(row, 0)[d] : 0.0, 1e-13);
    EXPECT_EQ(*part.lse.at(row, 0) == kNegInf, !asked) << "rows that were not asked stay empty";
  }
}

TEST(TileAttention, RowsThatSeeNothingStayExactlyEmpty) {
  Random random(101);
  const RandomCase c = tile_case(random, one_sequence(100, 30, Mask::causal(Align::bottom_right)));
  const Tile tile{all_rows(c.problem.layout_q), all_rows(c.problem.layout_k)};
  const Computed got = compute(c, {{c.problem, tile, {0, 100}, c.options, 0}});
  for (int row = 0; row < 70; ++row) {
    EXPECT_EQ(*got.lse.at(row, 0), kNegInf);
    for (int d = 0; d < c.v.dim; ++d) EXPECT_EQ(got.out.at(row, 0)[d], 0);
    for (int d = 0; d < c.q.dim; ++d) EXPECT_EQ(got.dq.at(row, 0)[d], 0);
  }
}

TEST(TileAttention, HugeScoresNeitherOverflowNorUnderflow) {  // one key takes all
  Random random(103);
  RandomCase c = tile_case(random, one_sequence(1, 200, Mask::full()));
  c.options.softcap = 0;
  for (double& x : c.q.data) x *= 1e150;
  const Tile tile{all_rows(c.problem.layout_q), all_rows(c.problem.layout_k)};
  const Computed got = compute(c, {{c.problem, tile, {0, 1}, c.options, 0}});
  const auto want = oracle::forward(c.definition(), c.arrays());
  expect_equal(want.out, got.out, "out");
  expect_equal(want.lse, got.lse, "lse");
}

}  // namespace
}  // namespace ringside
