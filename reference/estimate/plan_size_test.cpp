// How many tiles a plan would hold is asked of segments that nobody has checked yet.
#include "reference/estimate/plan_size.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <utility>
#include <vector>

#include "reference/estimate/estimate.h"
#include "reference/support/errors.h"
#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::expect_error;
using testing::Random;

Problem two_sequences() {
  const PackedLayout layout({0, 5, 12});
  return {layout, layout, Mask::causal(), 1, 1};
}

TEST(CheckTiles, RefusesSegmentsOfNoSequenceBeforeItCountsThem) {
  for (const int seq : {-1, 2, 99, INT_MIN, INT_MAX}) {
    Placement placement = place(two_sequences(), "whole_pack", 2);
    placement.q[1][0].seq = seq;
    const auto refuse = [&](const char* side) {
      const std::string segment = concat("rank 1 ", side, " segment (seq=", seq, ",");
      expect_error<InvalidArgument>([&] { check_tiles(two_sequences(), placement, {"p2p"}, 0); },
                                    {segment.c_str(), "not among the 2 of the layout"});
    };
    refuse("query");
    std::swap(placement.q, placement.k);
    refuse("key");
  }
}

int random_number(Random& random) {
  constexpr int kExtremes[] = {INT_MIN, INT_MIN + 1, -2, -1, 0, 1, 1 << 30, INT_MAX - 1, INT_MAX};
  return random.coin() ? random.integer(-3, 50) : kExtremes[random.integer(0, 8)];
}

// One number of some segments is another, or a segment comes twice, or not.
void break_some(Random& random, std::vector<Shard>& shards) {
  for (Shard& shard : shards)
    for (size_t i = 0; i < shard.size(); ++i) {
      constexpr int Segment::*kFields[] = {&Segment::seq, &Segment::pos, &Segment::stride,
                                           &Segment::row, &Segment::len, &Segment::gap};
      if (!random.one_in(4)) continue;
      shard[i].*kFields[random.integer(0, 5)] = random_number(random);
      if (random.one_in(6)) shard.push_back(shard[i]);
      if (random.one_in(9)) shard.erase(shard.begin() + static_cast<int>(i));
    }
}

TEST(CheckTiles, AndWhateverAsksItOfAnySegmentsIsRightOrRefuses) {
  Random random(111);
  int refused = 0, right = 0;
  for (int i = 0; i < testing::cases(800); ++i) {
    const Problem problem = testing::random_problem(random);
    const int cp_size = random.integer(1, 5);
    const Transport comm = testing::random_comm(random, cp_size);
    Placement placement = place(problem, testing::random_partition(random).name, cp_size);
    break_some(random, placement.q);
    break_some(random, placement.k);
    const auto refuses = [&](auto ask) {
      try {
        ask();
      } catch (const InvalidArgument&) {
        return true;
      }
      return false;
    };
    (void)refuses([&] { check_tiles(problem, placement, comm, random.integer(0, 99)); });
    const bool bad = refuses([&] { verify(build_plan(problem, placement, comm)); });
    EXPECT_EQ(refuses([&] { num_tiles(problem, placement, comm); }), bad);
    EXPECT_EQ(refuses([&] { estimate(problem, placement, comm); }), bad);
    ++(bad ? refused : right);
  }
  EXPECT_GT(refused, right);
  EXPECT_GT(right, 0);
}

}  // namespace
}  // namespace ringside
