// Every visible pair of every head exactly once: plans whose rows and messages are right, but whose
// tiles do too little or too much.
#include <gtest/gtest.h>

#include <functional>

#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::expect_error;

// Sequences of 4 and 3 tokens, 2 query and 2 kv heads, two ranks.
Plan covering_plan(const std::string& comm, const Mask& mask = Mask::causal(),
                   StackOrder order = StackOrder::fewest_segments) {
  const PackedLayout layout({0, 4, 7});
  const Problem problem{layout, layout, mask, 2, 2};
  return build_plan(problem, place(problem, "contiguous", 2), {comm, 0, {}, order});
}

std::vector<Tile>& tiles_at(Plan& plan, int rank, int step) {
  return plan.tile_lists[plan.steps_of_rank[rank][step].tiles];
}

TEST(VerifyCoverage, ATileIsMissing) {
  Plan plan = covering_plan("p2p");
  tiles_at(plan, 1, 1).pop_back();  // sequence 1: queries 1, 2 and key 0
  expect_error<PlanError>(
      [&] { verify(plan); },
      {"query 1 of sequence 1 sees key 0", "computed 0 times for heads [0, 2)", "expected once"});
}

TEST(VerifyCoverage, ATileListIsNotNamed) {
  Plan plan = covering_plan("p2p");
  plan.steps_of_rank[0][0].tiles = 0;
  expect_error<PlanError>([&] { verify(plan); },
                          {"query 0 of sequence 0 sees key 0", "computed 0 times"});
}

TEST(VerifyCoverage, ATileTwice) {
  Plan plan = covering_plan("p2p");
  tiles_at(plan, 1, 0).push_back(tiles_at(plan, 1, 0)[0]);
  expect_error<PlanError>([&] { verify(plan); },
                          {"query 2 of sequence 0 sees key 2", "computed 2 times"});
}

TEST(VerifyCoverage, TilesThatOverlapInOneKey) {
  Plan plan = covering_plan("p2p", Mask::full());
  Tile more = tiles_at(plan, 1, 0)[0];
  ASSERT_EQ(more.k, (Segment{0, 2, 1, 0, 2}));
  more.k = {0, 3, 1, 1, 1};
  tiles_at(plan, 1, 0).push_back(more);
  expect_error<PlanError>([&] { verify(plan); },
                          {"query 2 of sequence 0 sees key 3", "computed 2 times"});
}

TEST(VerifyCoverage, OneMissingAndOneTwiceDoNotMakeUpForEachOther) {
  Plan plan = covering_plan("all_gather", Mask::full(), StackOrder::of_ranks);
  for (Tile& tile : tiles_at(plan, 0, 0))
    if (tile.k == Segment{0, 2, 1, 3, 2}) tile.k = {0, 0, 1, 0, 2};  // keys 0, 1 instead of 2, 3
  expect_error<PlanError>([&] { verify(plan); },
                          {"query 0 of sequence 0 sees key 0, which is", "computed 2 times"});
}

TEST(VerifyCoverage, EachRowOfATileMayHaveOtherTilesBesideIt) {  // counts are right, keys are not
  const PackedLayout layout({0, 4});
  const Problem problem{layout, layout, Mask::full(), 1, 1};
  Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
  const Segment all{0, 0, 1, 0, 4}, one{0, 1, 1, 1, 1}, others{0, 2, 1, 2, 2};
  const Segment first{0, 0, 1, 0, 1}, low{0, 0, 1, 0, 2}, high{0, 2, 1, 2, 2};
  tiles_at(plan, 0, 0) = {{all, low}, {first, high}, {one, low}, {others, high}};
  expect_error<PlanError>([&] { verify(plan); },
                          {"query 1 of sequence 0 sees key 0", "computed 2 times"});
  tiles_at(plan, 0, 0)[2].k = high;
  EXPECT_NO_THROW(verify(plan));
}

TEST(VerifyCoverage, ATileCutShort) {
  for (const bool of_queries : {true, false}) {
    Plan plan = covering_plan("p2p", Mask::full());
    Tile& tile = tiles_at(plan, 0, 1)[0];  // queries 0, 1 and keys 2, 3 of sequence 0
    --(of_queries ? tile.q : tile.k).len;
    expect_error<PlanError>([&] { verify(plan); }, {of_queries ? "query 1 of sequence 0 sees key 2"
                                                               : "query 0 of sequence 0 sees key 3",
                                                    "computed 0 times"});
  }
}

TEST(VerifyCoverage, AHeadThatNobodyComputes) {
  Plan plan = covering_plan("a2a");
  Step& step = plan.steps_of_rank[1][0];
  step.tiles = 0;
  expect_error<PlanError>([&] { verify(plan); }, {"computed 0 times for heads [1, 2)"});
}

TEST(VerifyCoverage, AHeadOfOneRankThatAnotherComputesToo) {  // heads [0, 2) and [1, 2)
  Plan plan = covering_plan("a2a");
  plan.steps_of_rank[0][0].q.heads = plan.steps_of_rank[0][0].kv.heads = {0, 2};
  expect_error<PlanError>([&] { verify_coverage(plan); }, {"computed 2 times for heads [1, 2)"});
}

TEST(VerifyCoverage, AHeadThatTwoRanksCompute) {  // every rank has all the keys in the end
  Plan plan = covering_plan("all_gather");
  for (int rank = 0; rank < 2; ++rank)
    plan.steps_of_rank[rank].push_back(plan.steps_of_rank[rank][0]);
  for (int rank = 0; rank < 2; ++rank) plan.steps_of_rank[rank][1].before = {};
  expect_error<PlanError>([&] { verify(plan); }, {"computed 2 times for heads [0, 2)"});
  plan.steps_of_rank[0][1].tiles = plan.steps_of_rank[1][1].tiles = 0;
  EXPECT_NO_THROW(verify(plan)) << "an idle step is no mistake";
}

TEST(VerifyCoverage, AWiderMaskThanThePlanWasMadeFor) {
  Plan plan = covering_plan("p2p");
  plan.problem.mask = Mask::sliding_window(-1, 1);
  expect_error<PlanError>([&] { verify(plan); },
                          {"query 1 of sequence 0 sees key 2", "computed 0 times"});
}

TEST(VerifyCoverage, TilesMayBeCutAndReorderedFreely) {
  testing::Random random(47);
  for (int i = 0; i < 200; ++i) {
    Plan plan = testing::random_plan(random, testing::random_problem(random));
    const int64_t pairs = verify(plan).pairs;
    for (auto& list : plan.tile_lists) {
      std::vector<Tile> cut;
      for (Tile tile : list) {
        Segment& k = tile.k;
        const int at = random.integer(0, k.len - 1);
        if (at > 0) cut.push_back({tile.q, {k.seq, k.pos, k.stride, k.row, at}});
        k = {k.seq, k.pos + at * k.stride, k.stride, k.row + at, k.len - at};
        cut.push_back(tile);
      }
      std::erase_if(cut, [&](const Tile& t) {
        for (int row = 0; row < t.q.len; ++row)
          if (visible_rows(plan.problem, t, row).size() > 0) return false;
        return true;
      });
      list.assign(cut.rbegin(), cut.rend());
    }
    ASSERT_EQ(verify(plan).pairs, pairs);
  }
}

// Takes out, or puts in twice, any one tile of a random plan.
TEST(VerifyCoverage, EveryTileCounts) {
  testing::Random random(53);
  for (int i = 0; i < 150; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    for (size_t list = 1; list < plan.tile_lists.size(); ++list) {
      Plan less = plan, more = plan;
      const int at = random.integer(0, static_cast<int>(plan.tile_lists[list].size()) - 1);
      less.tile_lists[list].erase(less.tile_lists[list].begin() + at);
      more.tile_lists[list].push_back(plan.tile_lists[list][at]);
      expect_error<PlanError>([&] { verify(less); }, {"computed 0 times"});
      expect_error<PlanError>([&] { verify(more); }, {"computed 2 times"});
    }
  }
}

}  // namespace
}  // namespace ringside
