// What build_plan refuses, and the tools that transports share.
#include <gtest/gtest.h>

#include "reference/plan/cost.h"
#include "reference/schedule/schedule.h"
#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"
#include "reference/transport/transport.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::expect_error;

Problem four_tokens() {
  const PackedLayout layout({0, 4});
  return {layout, layout, Mask::full(), 2, 2};
}

void expect_refused(const Placement& placement, const Transport& comm,
                    std::initializer_list<const char*> parts) {
  expect_error<InvalidArgument>([&] { build_plan(four_tokens(), placement, comm); }, parts);
}

TEST(BuildPlan, RefusesAnUnknownTransport) {
  expect_refused(
      place(four_tokens(), "zigzag", 2), {"ring"},
      {"comm=\"ring\" is unknown", "\"p2p\", \"all_gather\", \"a2a\", \"a2a+p2p\", \"fetch\""});
}

TEST(BuildPlan, RefusesAnA2aSizeThatDoesNotDivide) {
  const Placement placement = place(four_tokens(), "zigzag", 4);
  for (const int size : {3, 5, 8, -2})
    expect_refused(placement, {"a2a+p2p", size},
                   {("a2a_size=" + std::to_string(size)).c_str(), "does not divide cp_size=4",
                    "Pass a divisor"});
  expect_refused(placement, {"a2a+p2p"},
                 {"a2a_size is missing", "a divisor of cp_size=4", "Pass one"});
  EXPECT_NO_THROW(build_plan(four_tokens(), placement, {"a2a+p2p", 2}));
}

TEST(BuildPlan, RefusesAnA2aSizeThatNobodyAskedFor) {
  for (const char* comm : {"p2p", "all_gather", "a2a", "fetch"})
    expect_refused(
        place(four_tokens(), "zigzag", 4), {comm, 2},
        {"a2a_size=2 with comm=\"", comm, "only comm=\"a2a+p2p\" takes it", "Leave it out"});
}

TEST(BuildPlan, RefusesStagesThatAreNone) {
  const Placement placement = place(four_tokens(), "zigzag", 4);
  for (const int stages : {0, -1})
    expect_refused(placement, {"fetch", 0, stages},
                   {("stages=" + std::to_string(stages)).c_str(), "at least 1", "Leave it out"});
  EXPECT_NO_THROW(build_plan(four_tokens(), placement, {"fetch", 0, 1}));
  EXPECT_NO_THROW(build_plan(four_tokens(), placement, {"fetch", 0, 2'147'483'647}));
}

TEST(BuildPlan, RefusesStagesThatNobodyAskedFor) {
  for (const char* comm : {"p2p", "all_gather", "a2a", "a2a+p2p"})
    expect_refused(place(four_tokens(), "zigzag", 4), {comm, comm[3] == '+' ? 2 : 0, 2},
                   {"stages=2 with comm=\"", comm, "only comm=\"fetch\" takes it", "Leave it out"});
}

TEST(BuildPlan, RefusesAPlacementWithoutAShardForEveryRank) {
  Placement placement = place(four_tokens(), "zigzag", 2);
  placement.k.pop_back();
  expect_refused(placement, {"p2p"}, {"2 query shards and 1 key shards", "one of each"});
  expect_refused({}, {"p2p"}, {"0 query shards", "one of each"});
}

TEST(BuildPlan, RefusesRowsWithTwoOwnersOrNone) {
  Placement placement = place(four_tokens(), "contiguous", 2);
  placement.q[1] = placement.q[0];
  expect_refused(placement, {"p2p"}, {"query position 0 of sequence 0", "by rank 0 and by rank 1"});
  placement = place(four_tokens(), "contiguous", 2);
  placement.k[1].clear();
  expect_refused(placement, {"p2p"}, {"key position 2 of sequence 0", "owned by no rank"});
}

TEST(BuildPlan, RefusesABadProblem) {
  Problem problem = four_tokens();
  const Placement placement = place(problem, "contiguous", 2);
  problem.num_kv_heads = 0;
  expect_error<InvalidArgument>([&] { build_plan(problem, placement, {"p2p"}); },
                                {"num_kv_heads=0"});
}

TEST(Place, RefusesNoRanksAndUnknownNames) {
  for (const int cp_size : {0, -3})
    expect_error<InvalidArgument>(
        [&] { place(four_tokens(), "zigzag", cp_size); },
        {("cp_size=" + std::to_string(cp_size)).c_str(), "expected at least 1"});
  expect_error<InvalidArgument>([] { place(four_tokens(), "zag", 2); },
                                {"partition=\"zag\" is unknown", "\"zigzag\""});
}

TEST(Place, PlacesQueriesAndKeysByTheirOwnLayouts) {
  const Problem problem{PackedLayout({0, 4}), PackedLayout({0, 6}), Mask::full(), 1, 1};
  const Placement placement = place(problem, "contiguous", 2);
  EXPECT_EQ(placement.name, "contiguous");
  EXPECT_EQ(placement.q[1], (Shard{{0, 2, 1, 0, 2}}));
  EXPECT_EQ(placement.k[1], (Shard{{0, 3, 1, 0, 3}}));
}

// Rows may go anywhere: rank 0 takes every query and rank 2 every key.
TEST(BuildPlan, TakesAnyPlacementThatOwnsEachRowOnce) {
  Placement placement;
  placement.q = {{{0, 2, 1, 0, 2}, {0, 0, 1, 2, 2}}, {}, {}};
  placement.k = {{}, {}, {{0, 1, 2, 0, 2}, {0, 0, 2, 2, 2}}};
  for (const char* comm : {"p2p", "all_gather", "a2a"}) {
    const Plan plan = build_plan(four_tokens(), placement, {comm});
    EXPECT_EQ(plan.partition, "custom");
    EXPECT_EQ(verify(plan).pairs, 16) << comm;
  }
  const Plan ring = build_plan(four_tokens(), placement, {"p2p"});
  ASSERT_EQ(ring.num_steps(), 2) << "rank 2's keys reach rank 0 on the first hop";
  EXPECT_EQ(ring.tiles(ring.steps_of_rank[0][1]).size(), 4u);
}

TEST(BuildPlanOfRanks, HasTheStepsOfTheWholeAndTheTilesOfItsRanks) {
  testing::Random random(79);
  for (int i = 0; i < 150; ++i) {
    const Problem problem = testing::random_problem(random);
    const int cp_size = random.integer(1, 6), rank = random.integer(0, cp_size - 1);
    const Transport comm = testing::random_comm(random, cp_size);
    const Placement placement = place(problem, testing::random_partition(random).name, cp_size);
    const Plan whole = build_plan(problem, placement, comm);
    const Plan part = build_plan_of_ranks(problem, placement, comm, {rank});
    ASSERT_EQ(part.num_steps(), whole.num_steps());
    for (int r = 0; r < whole.cp_size(); ++r)
      for (int step = 0; step < whole.num_steps(); ++step) {
        const Step &got = part.steps_of_rank[r][step], &want = whole.steps_of_rank[r][step];
        ASSERT_EQ(got.before, want.before);
        ASSERT_EQ(part.shard(got.q), whole.shard(want.q));
        ASSERT_EQ(part.shard(got.kv), whole.shard(want.kv));
        ASSERT_EQ(part.tiles(got), r == rank ? whole.tiles(want) : std::vector<Tile>{});
      }
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const Schedule got = make_schedule(part, rank, pass);
      const Schedule want = make_schedule(whole, rank, pass);
      ASSERT_EQ(got.operations.size(), want.operations.size());
      for (size_t op = 0; op < got.operations.size(); ++op) {
        ASSERT_EQ(got.operations[op].sends, want.operations[op].sends);
        ASSERT_EQ(got.operations[op].after, want.operations[op].after);
      }
    }
  }
}

TEST(BuildPlanOfRanks, IsNotTakenForTheWhole) {
  const Plan part =
      build_plan_of_ranks(four_tokens(), place(four_tokens(), "zigzag", 2), {"p2p"}, {1});
  expect_error<PlanError>([&] { verify(part); }, {"the tiles of 1 of 2 ranks"});
  expect_error<InvalidArgument>([&] { cost(part); }, {"needs the tiles of all 2 ranks"});
}

TEST(BuildPlanOfRanks, RefusesRanksOutOfOrder) {
  const Placement placement = place(four_tokens(), "zigzag", 2);
  for (const std::vector<int>& ranks : {std::vector<int>{1, 0}, {0, 0}, {2}, {-1}})
    expect_error<InvalidArgument>(
        [&] { build_plan_of_ranks(four_tokens(), placement, {"p2p"}, ranks); },
        {"expected rising ranks from 0 to 1"});
}

TEST(AddShard, EmptyShardsShareTheFirstEntry) {
  Plan plan;
  plan.shards.emplace_back();
  EXPECT_EQ(add_shard(plan, {}), kEmpty);
  EXPECT_EQ(add_shard(plan, {{0, 0, 1, 0, 2}}), 1);
  EXPECT_EQ(plan.shards.size(), 2u);
}

TEST(AddMessage, LeavesOutWhatCarriesNothing) {
  std::vector<Message> messages;
  add_message(messages, {0, Operand::q, 0, 0, {0, 2}});
  add_message(messages, {0, Operand::q, 0, 3, {1, 1}});
  EXPECT_TRUE(messages.empty());
  add_message(messages, {0, Operand::q, 0, 3, {1, 2}});
  EXPECT_EQ(messages.size(), 1u);
}

constexpr StackOrder kFewest = StackOrder::fewest_segments;

Plan plan_of_shards(std::vector<Shard> shards) {
  Plan plan;
  plan.problem = four_tokens();
  plan.problem.layout_q = plan.problem.layout_k = PackedLayout({0, 100, 200, 300});
  plan.shards = std::move(shards);
  plan.shards.insert(plan.shards.begin(), Shard{});
  return plan;
}

Stacked stack_all(Plan& plan, StackOrder order = kFewest) {
  std::vector<Buffer> buffers;
  for (int i = 1; i < static_cast<int>(plan.shards.size()); ++i) buffers.push_back({i, {0, 1}});
  return stack(plan, buffers, order);
}

TEST(Stack, LaysBuffersOneBelowTheOtherWhereNoneGoOnOutOfOrder) {
  Plan plan = plan_of_shards({{{0, 0, 1, 0, 2}}, {}, {{0, 2, 1, 0, 3}, {1, 4, 2, 3, 2}}});
  const Stacked both = stack_all(plan);
  EXPECT_EQ(both.row, (std::vector<int>{0, 2, 2}));
  EXPECT_EQ(plan.shards[both.shard], (Shard{{0, 0, 1, 0, 5}, {1, 4, 2, 5, 2}}))
      << "runs are joined";
  const Stacked one = stack(plan, {{3, {0, 1}}}, kFewest);
  EXPECT_EQ(one.shard, 3) << "one buffer is itself";
  EXPECT_EQ(one.row, (std::vector<int>{0}));
}

TEST(Stack, LetsSequencesGoOnAcrossBuffers) {
  const std::vector<Shard> chunks = {{{0, 0, 1, 0, 2}, {0, 6, 1, 2, 2}, {1, 0, 1, 4, 3}},
                                     {{0, 2, 1, 0, 4}}};
  Plan plan = plan_of_shards(chunks);
  const Stacked stacked = stack_all(plan);
  EXPECT_EQ(plan.shards[stacked.shard], (Shard{{0, 0, 1, 0, 8}, {1, 0, 1, 8, 3}}));
  EXPECT_EQ(stacked.row, (std::vector<int>{kByPosition, 2})) << "the second lies together there";
  Plan of_ranks = plan_of_shards(chunks);
  const Stacked below = stack_all(of_ranks, StackOrder::of_ranks);
  EXPECT_EQ(below.row, (std::vector<int>{0, 7}));
  EXPECT_EQ(of_ranks.shards[below.shard].size(), 4u);
}

TEST(Stack, JoinsStripesThatAreAllThere) {  // of 7 and of 2 tokens, on 3 ranks
  Plan plan = plan_of_shards(
      {{{0, 0, 3, 0, 3}, {1, 0, 3, 3, 1}}, {{0, 1, 3, 0, 2}, {1, 1, 3, 2, 1}}, {{0, 2, 3, 0, 2}}});
  const Stacked all = stack_all(plan);
  EXPECT_EQ(plan.shards[all.shard], (Shard{{0, 0, 1, 0, 7}, {1, 0, 1, 7, 2}}));
  EXPECT_EQ(all.row, (std::vector<int>{kByPosition, kByPosition, kByPosition}));
}

TEST(Stack, LeavesStripesWithGapsAlone) {
  Plan plan = plan_of_shards({{{0, 0, 4, 0, 3}}, {{0, 1, 4, 0, 3}}, {{0, 2, 4, 0, 3}}});
  EXPECT_EQ(stack_all(plan).row, (std::vector<int>{0, 3, 6}));
  Plan uneven = plan_of_shards({{{0, 0, 2, 0, 3}}, {{0, 1, 2, 0, 1}}});
  EXPECT_EQ(stack_all(uneven).row, (std::vector<int>{0, 3})) << "position 3 is missing";
  Plan apart = plan_of_shards({{{0, 0, 2, 0, 3}}, {{0, 3, 2, 0, 2}}});
  EXPECT_EQ(stack_all(apart).row, (std::vector<int>{0, 3})) << "position 1 is missing";
}

}  // namespace
}  // namespace ringside
