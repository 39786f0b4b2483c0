// What schedules cost: forward, the same bytes as the plan's own count; backward, by hand.
#include "reference/schedule/schedule_cost.h"

#include <gtest/gtest.h>

#include <numeric>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

TEST(PassCost, OfTheForwardPassIsThatOfThePlan) {
  Random random(71);
  for (int i = 0; i < testing::cases(150); ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    const ElementSizes sizes{random.integer(1, 9), random.integer(1, 9), random.integer(1, 4)};
    const PlanCost want = cost(plan, sizes);
    const PassCost got = pass_cost(plan, Pass::forward, sizes);
    ASSERT_EQ(got.result_bytes_sent, want.result_bytes_sent);
    ASSERT_EQ(got.result_bytes_received, want.result_bytes_received);
    for (int rank = 0; rank < plan.cp_size(); ++rank)
      for (int step = 0; step < plan.num_steps(); ++step) {
        ASSERT_EQ(got.bytes_sent(rank, step), want.bytes_sent(rank, step));
        ASSERT_EQ(got.bytes_received(rank, step), want.bytes_received(rank, step));
      }
  }
}

// Message by message and area by area, as the schedules of all ranks have them.
PassCost of_schedules(const Plan& plan, Pass pass, const ElementSizes& sizes, KeepKv keep) {
  const int ranks = plan.cp_size();
  const std::vector<int64_t> none(ranks);
  const PerStep nothing(ranks, plan.num_steps());
  PassCost cost{nothing, nothing, none, none, none, none};
  if (pass == Pass::backward) cost.gradient_bytes_sent = cost.gradient_bytes_received = nothing;
  for (const Schedule& s : make_schedules(plan, pass, keep)) {
    const auto add = [&](const std::vector<ScheduledMessage>& messages, int step, PerStep& of_steps,
                         PerStep& of_gradients, int64_t& of_results) {
      for (const ScheduledMessage& m : messages) {
        const Payload payload = s.buffers[m.block.buffer].payload;
        const int64_t bytes = m.block.cells() * bytes_of_cell(payload, pass, sizes, true);
        (payload == Payload::results ? of_results : of_steps(s.rank, step)) += bytes;
        if (payload == Payload::query_gradients || payload == Payload::key_gradients)
          of_gradients(s.rank, step) += bytes;
      }
    };
    for (const Operation& op : s.operations) {
      add(op.sends, op.step, cost.bytes_sent, cost.gradient_bytes_sent,
          cost.result_bytes_sent[s.rank]);
      add(op.receives, op.step, cost.bytes_received, cost.gradient_bytes_received,
          cost.result_bytes_received[s.rank]);
    }
    for (const Area& area : s.areas)
      (area.kept ? cost.kept_bytes : cost.workspace_bytes)[s.rank] +=
          area.cells * bytes_of_cell(area.payload, pass, sizes, false);
  }
  return cost;
}

TEST(PassCost, IsThatOfTheSchedules) {
  Random random(79);
  for (int i = 0; i < testing::cases(300); ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    const ElementSizes sizes{random.integer(1, 9), random.integer(1, 9), random.integer(1, 4)};
    for (const auto& [pass, keep] :
         {std::pair(Pass::forward, KeepKv::no), std::pair(Pass::backward, KeepKv::no),
          std::pair(Pass::forward, KeepKv::yes), std::pair(Pass::backward, KeepKv::yes)}) {
      const PassCost want = of_schedules(plan, pass, sizes, keep);
      const PassCost got = pass_cost(plan, pass, sizes, keep);
      ASSERT_EQ(got.kept_bytes, want.kept_bytes);
      ASSERT_EQ(got.bytes_sent, want.bytes_sent);
      ASSERT_EQ(got.bytes_received, want.bytes_received);
      ASSERT_EQ(got.result_bytes_sent, want.result_bytes_sent);
      ASSERT_EQ(got.result_bytes_received, want.result_bytes_received);
      ASSERT_EQ(got.workspace_bytes, want.workspace_bytes);
      ASSERT_EQ(got.gradient_bytes_sent, want.gradient_bytes_sent);
      ASSERT_EQ(got.gradient_bytes_received, want.gradient_bytes_received);
    }
  }
}

TEST(PassCost, WhatIsSentIsReceived) {
  Random random(73);
  for (int i = 0; i < 100; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    const PassCost backward = pass_cost(plan, Pass::backward);
    for (int step = 0; step < plan.num_steps(); ++step) {
      int64_t sent = 0, received = 0;
      for (int rank = 0; rank < plan.cp_size(); ++rank) {
        sent += backward.bytes_sent(rank, step);
        received += backward.bytes_received(rank, step);
      }
      ASSERT_EQ(sent, received);
    }
  }
}

Plan ring_of_two(Mask mask, const std::string& comm = "p2p") {  // two rows and two heads a rank
  const PackedLayout layout({0, 4});
  const Problem problem{layout, layout, mask, 2, 2};
  return build_plan(problem, place(problem, "contiguous", 2), {comm});
}

TEST(PassCost, OfARingBringsKeysAgainAndGradientsBack) {
  const PassCost cost = pass_cost(ring_of_two(Mask::full()), Pass::backward, {3, 5, 2});
  const int64_t cells = 2 * 2, keys = cells * (3 + 5) * 2, gradients = cells * (3 + 5) * 4;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(cost.bytes_sent(rank, 0), 0);
    EXPECT_EQ(cost.bytes_sent(rank, 1), keys + gradients);
    // One buffer of keys, two of their sums, what arrives, and dq.
    EXPECT_EQ(cost.workspace_bytes[rank], keys + 3 * gradients + cells * 3 * 4);
  }
}

TEST(PassCost, OfAnAllToAllMovesQueriesTheirGradientsAndResults) {
  const Plan plan = ring_of_two(Mask::full(), "a2a");
  const PassCost forward = pass_cost(plan, Pass::forward, {3, 5, 2});
  const PassCost backward = pass_cost(plan, Pass::backward, {3, 5, 2});
  const int64_t cells = 2 * 1;  // two rows of one head go to the other rank
  EXPECT_EQ(forward.bytes_sent(0, 0), cells * (3 + 3 + 5) * 2);
  EXPECT_EQ(forward.result_bytes_sent[0], cells * (5 * 2 + 4));
  const int64_t forth = cells * ((3 + 5) * 2 + 8), keys = cells * (3 + 5) * 2;
  EXPECT_EQ(backward.bytes_sent(0, 0), forth + keys + cells * (3 + 3 + 5) * 4);
}

TEST(PassCost, OneRankNeedsRoomForItsSumsAlone) {
  const PackedLayout layout({0, 4});
  const Problem problem{layout, layout, Mask::causal(), 2, 1};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 1), {"p2p"});
  EXPECT_EQ(pass_cost(plan, Pass::forward, {3, 5, 2}).workspace_bytes[0], 4 * 2 * (5 + 1) * 4);
  EXPECT_EQ(pass_cost(plan, Pass::backward, {3, 5, 2}).workspace_bytes[0],
            4 * 2 * 3 * 4 + 4 * 1 * (3 + 5) * 4);
}

}  // namespace
}  // namespace ringside
