// Every "no" at the door: each message says what was got, what was expected and how to fix it.
#include "reference/verify/validate.h"

#include <gtest/gtest.h>

#include <climits>

#include "reference/test_support/test_errors.h"

namespace ringside {
namespace {

using Parts = std::initializer_list<const char*>;

template <typename Call>
void expect_refused(Call call, Parts parts) {
  testing::expect_error<InvalidArgument>(call, parts);
}

// 5 tokens in 8 rows and 7 in 8.
PackedLayout two_sequences() { return PackedLayout({0, 5, 12}, {0, 8, 16}); }

Problem good_problem() { return {two_sequences(), two_sequences(), Mask::causal(), 6, 2}; }

TEST(CheckMask, AcceptsEveryBoundFromUnboundedUp) {
  for (const int left : {-1, 0, INT_MAX})
    for (const int chunk : {0, 1, INT_MAX}) EXPECT_NO_THROW(check_mask({left, 3, chunk, {}}));
}

TEST(CheckMask, RefusesNegativeWindows) {
  const Parts parts{"window_size=(-2, 0)", "expected -1 (unbounded)", "Causal is (-1, 0)"};
  expect_refused([] { check_mask({-2, 0, 0, {}}); }, parts);
  expect_refused([] { check_mask({3, -7, 0, {}}); }, {"window_size=(3, -7)"});
}

TEST(CheckMask, RefusesNegativeChunks) {
  expect_refused(
      [] {
        check_mask({-1, 0, -4, {}});
      },
      {"chunk_size=-4", "expected 0 (no chunks)", "tokens in a chunk"});
}

TEST(CheckProblem, AcceptsGroupedHeadsAndOtherLengths) {
  EXPECT_NO_THROW(check_problem(good_problem()));
  Problem problem = good_problem();
  problem.layout_k = PackedLayout({0, 0, 99});
  EXPECT_NO_THROW(check_problem(problem));
}

TEST(CheckProblem, RefusesABadMask) {
  Problem problem = good_problem();
  problem.mask.right = -3;
  expect_refused([&] { check_problem(problem); }, {"window_size=(-1, -3)"});
}

TEST(CheckProblem, RefusesDifferentNumbersOfSequences) {
  Problem problem = good_problem();
  problem.layout_k = PackedLayout({0, 4});
  expect_refused([&] { check_problem(problem); },
                 {"layout_q holds 2 sequences and layout_k 1", "both need the same number",
                  "Add zero-length sequences"});
}

TEST(CheckProblem, RefusesNoHeads) {
  for (const int heads : {0, -4}) {
    Problem problem = good_problem();
    problem.num_heads = heads;
    expect_refused([&] { check_problem(problem); },
                   {("num_heads=" + std::to_string(heads)).c_str(), "expected at least 1"});
  }
}

TEST(CheckProblem, RefusesHeadsThatDoNotGroup) {
  for (const int kv_heads : {0, -2, 4, 12}) {
    Problem problem = good_problem();
    problem.num_kv_heads = kv_heads;
    expect_refused([&] { check_problem(problem); },
                   {"num_heads=6", ("num_kv_heads=" + std::to_string(kv_heads)).c_str(),
                    "multiple of kv heads", "h / (num_heads / num_kv_heads)"});
  }
}

struct BadSegment {
  Segment segment;
  std::vector<const char*> parts;
};
void PrintTo(const BadSegment& bad, std::ostream* text) { *text << bad.parts[0]; }

class CheckSegments : public ::testing::TestWithParam<BadSegment> {};

TEST_P(CheckSegments, RefusesAndNamesIt) {
  const auto& [segment, parts] = GetParam();
  for (const char* part : parts)
    expect_refused([&] { check_segments("rank 3 query", two_sequences(), {segment}); },
                   {"rank 3 query segment (seq=", part});
}

INSTANTIATE_TEST_SUITE_P(
    Each, CheckSegments,
    ::testing::Values(
        BadSegment{{2, 0, 1, 0, 1}, {"seq=2,", "not among the 2 of the layout"}},
        BadSegment{{-1, 0, 1, 0, 1}, {"seq=-1,", "not among the 2 of the layout"}},
        BadSegment{{0, 0, 0, 0, 1}, {"stride=0,", "expected stride >= 1"}},
        BadSegment{{0, 0, -1, 0, 1}, {"stride=-1,", "expected stride >= 1"}},
        BadSegment{{0, 0, 1, 0, 0}, {"len=0)", "Leave empty segments out"}},
        BadSegment{{0, 0, 1, 0, -5}, {"len=-5)", "len >= 1"}},
        BadSegment{{0, -1, 1, 0, 1}, {"pos=-1,", "pos >= 0"}},
        BadSegment{{0, 0, 1, 1, 1}, {"starts at row 1 but the rows before it end at 0"}},
        BadSegment{{0, 8, 1, 0, 1}, {"reaches position 8 of sequence 0, which has 8 rows"}},
        BadSegment{{1, 0, 1, 0, 9}, {"reaches position 8 of sequence 1, which has 8 rows"}},
        BadSegment{{0, 1, 4, 0, 3}, {"reaches position 9 of sequence 0"}},
        BadSegment{{0, 1, 2147483647, 0, 1}, {"goes on at position 2147483648", "such as 1"}},
        BadSegment{{0, 1, INT_MAX, 0, 3}, {"reaches position 4294967295 of sequence 0"}},
        BadSegment{{0, 0, 1, 0, INT_MAX}, {"reaches position 2147483646 of sequence 0"}},
        BadSegment{{0, 0, 1, 0, 4, 2, 3}, {"has a gap of 3 positions", "two segments"}}));

TEST(CheckSegments, LieBackToBack) {
  const PackedLayout layout = two_sequences();
  EXPECT_NO_THROW(check_segments("x", layout, {{0, 0, 2, 0, 4}, {1, 7, 1, 4, 1}}));
  EXPECT_NO_THROW(check_segments("x", layout, {}));
  expect_refused(
      [&] {
        check_segments("x", layout, {{0, 0, 2, 0, 4}, {1, 7, 1, 5, 1}});
      },
      {"row=5", "the rows before it end at 4", "back to back"});
  expect_refused(
      [&] {
        check_segments("x", layout, {{0, 0, 2, 0, 4}, {1, 7, 1, 3, 1}});
      },
      {"row=3", "the rows before it end at 4"});
}

TEST(CheckSegments, EndWhereRowsCanBeCounted) {
  const PackedLayout layout({0, INT_MAX});
  EXPECT_NO_THROW(
      check_segments("x", layout, {{0, 0, 1, 0, INT_MAX - 1}, {0, 0, 1, INT_MAX - 1, 1}}));
  expect_refused(
      [&] {
        check_segments("x", layout, {{0, 0, 1, 0, INT_MAX}, {0, 0, 1, INT_MAX, INT_MAX}});
      },
      {"ends at row 4294967294", "at most 2147483647", "Own every row once"});
}

TEST(CheckShards, NamesTheRankOfASegmentOfNoSequence) {
  const std::vector<Shard> shards{{{0, 0, 1, 0, 2}}, {{-7, 0, 1, 0, 2}}};
  expect_refused([&] { check_shards(Operand::kv, two_sequences(), shards); },
                 {"rank 1 key segment (seq=-7,", "not among the 2 of the layout"});
}

void check_two(const Shard& first, const Shard& second) {
  check_ownership(Operand::q, PackedLayout({0, 2, 3}, {0, 2, 4}), {first, second});
}

TEST(CheckOwnership, AcceptsEveryRowOnceInAnyOrder) {
  EXPECT_NO_THROW(check_two({{1, 1, 1, 0, 1}, {0, 0, 1, 1, 2}}, {{1, 0, 1, 0, 1}}));
  EXPECT_NO_THROW(check_ownership(Operand::kv, PackedLayout(), {{}, {}}));
  EXPECT_NO_THROW(check_ownership(Operand::kv, PackedLayout(), {}));
}

TEST(CheckOwnership, TellsManyRowsByTheEndsOfSegments) {
  const int third = 700'000'000;
  const PackedLayout layout({0, 3 * third});
  const Shard first{{0, 0, 3, 0, third}}, second{{0, 1, 3, 0, third}},
      last{{0, 2, 3, 0, third - 7}, {0, 3 * (third - 7) + 2, 3, third - 7, 7}};
  for (int i = 0; i < 20; ++i)  // to mark that many rows takes 8 GB and seconds each time
    EXPECT_NO_THROW(check_ownership(Operand::q, layout, {second, last, first}));
}

TEST(CheckOwnership, RefusesOfFewLongSegmentsWhatItRefusesOfAll) {
  const PackedLayout layout({0, 90, 99, 99, 150});
  const Segment a{0, 0, 2, 0, 45}, b{0, 1, 2, 0, 45}, c{1, 0, 1, 45, 9}, d{3, 0, 1, 45, 51};
  const auto check = [&](const std::vector<Shard>& shards) {
    check_ownership(Operand::q, layout, shards);
  };
  EXPECT_NO_THROW(check({{a, c}, {b, d}}));
  const Segment short_b{0, 1, 2, 0, 44}, late_b{0, 3, 2, 0, 44}, twice{0, 88, 2, 54, 1};
  const Segment later_d{3, 0, 1, 44, 51}, other{0, 0, 1, 0, 90}, odd{0, 2, 2, 0, 44};
  expect_refused([&] { check({{a, c}, {short_b, later_d}}); }, {"query position 89 of sequence 0"});
  expect_refused([&] { check({{a, c}, {late_b, later_d}}); }, {"query position 1 of sequence 0"});
  expect_refused([&] { check({{a, c, twice}, {b, d}}); }, {"position 88", "rank 0 and by rank 0"});
  expect_refused([&] { check({{a, c}, {b}}); }, {"query position 0 of sequence 3", "no rank"});
  expect_refused([&] { check({{a}, {b, d}}); }, {"query position 0 of sequence 1", "no rank"});
  expect_refused(
      [&] {
        check({{a, c}, {other}});
      },
      {"query position 0 of sequence 0", "by rank 1"});
  expect_refused([&] { check({{a, c}, {odd, later_d}}); }, {"position 2 of sequence 0"});
}

TEST(CheckOwnership, RefusesTwoOwners) {
  expect_refused(
      [] {
        check_two({{0, 0, 1, 0, 2}, {1, 0, 1, 2, 2}}, {{1, 1, 1, 0, 1}});
      },
      {"query position 1 of sequence 1", "by rank 0 and by rank 1", "exactly once"});
  expect_refused(
      [] {
        check_two({{0, 0, 1, 0, 2}, {0, 1, 1, 2, 1}}, {{1, 0, 1, 0, 2}});
      },
      {"query position 1 of sequence 0", "by rank 0 and by rank 0"});
}

TEST(CheckOwnership, RefusesARowWithoutOwnerPaddingToo) {
  expect_refused(
      [] {
        check_two({{0, 0, 1, 0, 2}}, {{1, 0, 1, 0, 1}});
      },
      {"query position 1 of sequence 1 is owned by no rank", "padding too"});
  expect_refused([] { check_two({}, {}); }, {"query position 0 of sequence 0"});
}

TEST(CheckOwnership, NamesTheRankOfABadSegment) {
  expect_refused(
      [] {
        check_two({{0, 0, 1, 0, 2}}, {{1, 0, 1, 0, 3}});
      },
      {"rank 1 query segment", "reaches position 2 of sequence 1"});
}

}  // namespace
}  // namespace ringside
