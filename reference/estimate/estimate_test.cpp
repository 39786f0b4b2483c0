// What is estimated is what the built plan costs, in every number.
#include "reference/estimate/estimate.h"

#include <gtest/gtest.h>

#include "reference/estimate/plan_size.h"
#include "reference/support/errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

void expect_equal(const PassCost& got, const PassCost& want) {
  EXPECT_EQ(got.bytes_sent, want.bytes_sent);
  EXPECT_EQ(got.bytes_received, want.bytes_received);
  EXPECT_EQ(got.result_bytes_sent, want.result_bytes_sent);
  EXPECT_EQ(got.result_bytes_received, want.result_bytes_received);
  EXPECT_EQ(got.workspace_bytes, want.workspace_bytes);
}

void expect_equal(const CostOfPasses& got, const CostOfPasses& want) {
  for (const auto field :
       {&PlanCost::pairs, &PlanCost::blocks, &PlanCost::partial_blocks, &PlanCost::visits,
        &PlanCost::tiles, &PlanCost::rows_needed, &PlanCost::bytes_received, &PlanCost::bytes_sent,
        &PlanCost::messages, &PlanCost::rows_q, &PlanCost::rows_kv})
    EXPECT_EQ(got.*field, want.*field);
  EXPECT_EQ(got.result_bytes_received, want.result_bytes_received);
  EXPECT_EQ(got.result_bytes_sent, want.result_bytes_sent);
  expect_equal(got.forward_pass, want.forward_pass);
  expect_equal(got.backward_pass, want.backward_pass);
}

TEST(Estimate, IsTheCostOfThePlan) {
  Random random(101);
  for (int i = 0; i < 600 && !::testing::Test::HasFailure(); ++i) {
    const Problem problem = testing::random_problem(random);
    const int cp_size = random.integer(1, 9);
    const Transport comm = testing::random_comm(random, cp_size);
    const Placement placement = place(problem, testing::random_partition(random).name, cp_size);
    const ElementSizes sizes{random.integer(1, 9), random.integer(1, 9), random.integer(1, 4)};
    const BlockSize block{random.integer(1, 9), random.integer(1, 9)};
    const Plan plan = build_plan(problem, placement, comm);
    expect_equal(estimate(problem, placement, comm, sizes, block),
                 cost_of_passes(plan, sizes, block));
    if (comm.name == "fetch") continue;  // about as many as a ring
    int64_t tiles = 0;
    for (const auto& list : plan.tile_lists) tiles += static_cast<int64_t>(list.size());
    EXPECT_EQ(num_tiles(problem, placement, comm), tiles) << comm.name;
  }
}

TEST(Estimate, OfTilesBeyondTheLimitIsARefusal) {
  const PackedLayout layout({0, 64});
  const Problem problem{layout, layout, Mask::causal(), 1, 1};
  const Placement placement = place(problem, "zigzag", 4);
  const int64_t tiles = num_tiles(problem, placement, {"p2p"});
  EXPECT_NO_THROW(check_tiles(problem, placement, {"p2p"}, tiles));
  EXPECT_THROW(check_tiles(problem, placement, {"p2p"}, tiles - 1), InvalidArgument);
}

}  // namespace
}  // namespace ringside
