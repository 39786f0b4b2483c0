// Schedules are proved; broken ones are refused with the rank and operation at fault.
#include "reference/schedule/verify/verify_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::expect_error;
using testing::Random;

constexpr Pass kPasses[] = {Pass::forward, Pass::backward};

Plan ring(int cp_size, const std::string& comm = "p2p") {
  const PackedLayout layout({0, 4 * cp_size});
  const Problem problem{layout, layout, Mask::full(), 2, 2};
  return build_plan(problem, place(problem, "contiguous", cp_size), {comm});
}

std::vector<int> indices(const Schedule& s, OperationKind kind) {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(s.operations.size()); ++i)
    if (s.operations[i].kind == kind) found.push_back(i);
  return found;
}

TEST(VerifySchedules, ProvesThoseOfRandomPlans) {
  Random random(61);
  int64_t messages = 0, pairs = 0;
  for (int i = 0; i < 200; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    for (const Pass pass : kPasses) {
      const ScheduleProof proof = verify_schedules(plan, make_schedules(plan, pass));
      messages += proof.messages, pairs += proof.ordered_pairs;
    }
  }
  EXPECT_GT(messages, 1000);
  EXPECT_GT(pairs, 1000);
}

// Of a ring of pairs, rank 0's own rows go apart into keys of which rank 1's land in one piece.
TEST(MakeSchedule, TilesDoNotWaitForAnothersRowsBesideTheirOwn) {
  const PackedLayout layout({0, 64});
  const Problem problem{layout, layout, Mask::causal(), 4, 4};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 4), {"a2a+p2p", 2});
  int beside = 0;  // copies by position into buffers where others' rows land
  for (int rank = 0; rank < 4; ++rank) {
    const Schedule s = make_schedule(plan, rank, Pass::backward);
    for (const int copy : indices(s, OperationKind::copy))
      for (const int exchange : indices(s, OperationKind::exchange))
        for (const ScheduledMessage& m : s.operations[exchange].receives)
          beside += m.block.buffer == s.operations[copy].to.buffer;
    const auto brings_keys_of_later_tiles = [&](int before, int step) {
      const Operation& op = s.operations[before];
      return op.kind == OperationKind::exchange && op.step < step && !op.receives.empty() &&
             s.buffers[op.receives[0].block.buffer].payload == Payload::keys;
    };
    for (const int tiles : indices(s, OperationKind::compute))
      for (int i = 0; i <= tiles; ++i)
        for (const int before : s.operations[i].after)
          EXPECT_FALSE(s.operations[i].stream == Stream::compute &&
                       brings_keys_of_later_tiles(before, s.operations[tiles].step))
              << "rank " << rank << ": operation " << i << " stands before tiles " << tiles;
  }
  EXPECT_GT(beside, 0);
}

// A zigzag of four chunks a rank: what is fetched lands apart, through staging.
TEST(MakeSchedule, CopiesStandBetweenTilesWhichWaitForNothingOfTheNextStep) {
  const PackedLayout layout({0, 64});
  const Problem problem{layout, layout, Mask::causal(), 2, 2};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 4), {"fetch", 0, 1});

  const Schedule forward = make_schedule(plan, 0, Pass::forward);
  const auto tiles = indices(forward, OperationKind::compute);
  const auto copies = indices(forward, OperationKind::copy);
  const auto exchanges = indices(forward, OperationKind::exchange);
  ASSERT_EQ(tiles.size(), 2u);
  ASSERT_FALSE(copies.empty());
  EXPECT_TRUE(forward.operations[tiles[0]].after.empty()) << "own tiles";
  EXPECT_LT(exchanges[0], tiles[0]);
  EXPECT_GT(copies[0], tiles[0]) << "what arrives is not waited for before own tiles";
  EXPECT_EQ(forward.operations[copies[0]].after, exchanges);
  EXPECT_LT(copies.back(), tiles[1]);

  const Schedule backward = make_schedule(plan, 0, Pass::backward, KeepKv::yes);
  const auto tiles_back = indices(backward, OperationKind::compute);
  const auto packs = indices(backward, OperationKind::copy);
  ASSERT_EQ(tiles_back.size(), 2u);
  ASSERT_FALSE(packs.empty());
  EXPECT_GT(packs[0], tiles_back[0]);
  EXPECT_LT(packs.back(), tiles_back[1]) << "collected before own tiles, under which they travel";
  const int sent = indices(backward, OperationKind::exchange).back();
  EXPECT_EQ(backward.operations[sent].after, std::vector<int>{packs.back()});
  EXPECT_LT(sent, tiles_back[1]);
}

TEST(MakeSchedule, TheNextKeysTravelUnderTheTilesOfAStep) {
  const Schedule s = make_schedule(ring(4), 0, Pass::forward);
  const auto exchanges = indices(s, OperationKind::exchange);
  const auto tiles = indices(s, OperationKind::compute);
  ASSERT_EQ(exchanges.size(), 3u);
  ASSERT_EQ(tiles.size(), 4u);
  for (int step = 0; step < 3; ++step) {
    EXPECT_LT(exchanges[step], tiles[step]) << "posted first";
    EXPECT_EQ(s.operations[exchanges[step]].step, step + 1);
    const auto& waits = s.operations[tiles[step]].after;
    EXPECT_EQ(std::count(waits.begin(), waits.end(), exchanges[step]), 0) << "not waited for";
    EXPECT_EQ(s.operations[tiles[step + 1]].after, std::vector<int>{exchanges[step]});
  }
}

TEST(MakeSchedule, TwoAreasOfKeysAreEnough) {
  const auto of_keys = [](const Schedule& s) {
    return std::count_if(s.areas.begin(), s.areas.end(),
                         [](const Area& a) { return a.payload == Payload::keys; });
  };
  for (const Pass pass : kPasses) EXPECT_EQ(of_keys(make_schedule(ring(6), 1, pass)), 2);
  EXPECT_EQ(of_keys(make_schedule(ring(1), 0, Pass::backward)), 0);
}

TEST(MakeSchedule, BackwardBeginsWithTheLastStepAndFetchesFromOwners) {
  const Schedule s = make_schedule(ring(3), 0, Pass::backward);
  const auto tiles = indices(s, OperationKind::compute);
  ASSERT_EQ(tiles.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(s.operations[tiles[i]].step, 2 - i);
  EXPECT_EQ(s.operations[tiles[2]].keys, s.home_keys) << "step 0 uses what is at home";
  const Operation& first = s.operations[indices(s, OperationKind::exchange)[0]];
  ASSERT_EQ(first.receives.size(), 1u);
  EXPECT_EQ(first.receives[0].peer, 1) << "after two hops rank 0 held the keys of rank 1";
}

TEST(MakeSchedule, GradientsAreAddedInTheOrderOfRanks) {
  const Schedule s = make_schedule(ring(4, "all_gather"), 1, Pass::backward);
  const auto groups = indices(s, OperationKind::exchange);
  const Operation& home = s.operations[groups.back()];
  std::vector<int> order;  // who a combined block comes from
  for (const int i : indices(s, OperationKind::combine)) {
    const int buffer = s.operations[i].from.buffer;
    const auto sent =
        std::find_if(home.receives.begin(), home.receives.end(),
                     [&](const ScheduledMessage& m) { return m.block.buffer == buffer; });
    order.push_back(sent == home.receives.end() ? s.rank : sent->peer);
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(MakeSchedule, OneRankMovesNothing) {
  for (const Pass pass : kPasses) {
    const Schedule s = make_schedule(ring(1), 0, pass);
    EXPECT_TRUE(indices(s, OperationKind::exchange).empty());
    EXPECT_TRUE(indices(s, OperationKind::copy).empty());
  }
}

TEST(VerifySchedules, EveryWaitIsNeeded) {
  Random random(67);
  int dropped = 0;
  for (int i = 0; i < 40; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    for (const Pass pass : kPasses)
      for (const Schedule& s : make_schedules(plan, pass))
        for (size_t op = 0; op < s.operations.size(); ++op) {
          if (s.operations[op].after.empty()) continue;
          Schedule broken = s;
          broken.operations[op].after.clear();
          ++dropped;
          expect_error<PlanError>([&] { verify_races(broken); },
                                  {"may run before", "and both touch"});
        }
  }
  EXPECT_GT(dropped, 100);
}

TEST(VerifySchedules, ALostMessageIsNamed) {
  const Plan plan = ring(3);
  for (const Pass pass : kPasses) {
    auto schedules = make_schedules(plan, pass);
    auto& op = schedules[1].operations[indices(schedules[1], OperationKind::exchange)[0]];
    op.sends.clear();
    expect_error<PlanError>([&] { verify_schedules(plan, schedules); },
                            {"rank 1", "at the other end"});
  }
}

TEST(VerifySchedules, EndsOfAnotherShapeAreNamed) {
  const Plan plan = ring(2);
  auto schedules = make_schedules(plan, Pass::forward);
  auto& op = schedules[0].operations[indices(schedules[0], OperationKind::exchange)[0]];
  op.receives[0].block.rows -= 1;
  expect_error<PlanError>([&] { verify_schedules(plan, schedules); },
                          {"rank 1 forward operation", "of another shape than rank 0"});
}

TEST(VerifySchedules, GroupsThatWaitForEachOtherAreADeadlock) {
  auto schedules = make_schedules(ring(3), Pass::forward);
  for (Schedule& s : schedules) {  // every rank receives first and sends with its second group
    const auto groups = indices(s, OperationKind::exchange);
    auto &first = s.operations[groups[0]].sends, &second = s.operations[groups[1]].sends;
    second.insert(second.begin(), first.begin(), first.end());
    first.clear();
  }
  expect_error<PlanError>([&] { verify_progress(schedules); },
                          {"rank 0 never ends operation", "exchange of step 1: deadlock"});
}

TEST(VerifySchedules, StepsAndMemoryAreThoseOfThePlan) {
  const Plan plan = ring(2);
  const auto refused = [&](auto change, std::initializer_list<const char*> words) {
    auto schedules = make_schedules(plan, Pass::backward);
    change(schedules[1]);
    expect_error<PlanError>([&] { verify_schedules(plan, schedules); }, words);
  };
  refused([](Schedule& s) { s.areas[0].cells += 1; }, {"rank 1 states", "its buffers take"});
  refused([](Schedule& s) { s.operations.pop_back(); },
          {"rank 1 holds", "key_gradients", "of which 0 go on"});
  refused([&](Schedule& s) { s.operations[indices(s, OperationKind::compute)[0]].tiles = 0; },
          {"rank 1 backward operation", "other buffers or tiles"});
  refused([&](Schedule& s) { s.operations[indices(s, OperationKind::compute)[1]].after = {99}; },
          {"waits for operation 99"});
  refused([&](Schedule& s) { s.operations[indices(s, OperationKind::compute)[0]].step = 7; },
          {"names a step"});
  refused(
      [&](Schedule& s) {
        s.operations[indices(s, OperationKind::exchange)[0]].receives[0].block.buffer = s.home_keys;
      },
      {"caller's arrays"});
}

}  // namespace
}  // namespace ringside
