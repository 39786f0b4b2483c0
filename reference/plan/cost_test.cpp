// Costs counted by hand on small plans, and what no plan of a problem can change.
#include "reference/plan/cost.h"

#include <gtest/gtest.h>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

Plan make_plan(const PackedLayout& layout, const Mask& mask, int cp_size, const Transport& comm,
               int heads = 1, int kv_heads = 1) {
  const Problem problem{layout, layout, mask, heads, kv_heads};
  return build_plan(problem, place(problem, "contiguous", cp_size), comm);
}

// dim 3 of q and k, 5 of v, 2 bytes each: a row of one kv head is 16 bytes, of one q head 6, of one
// result 5*2 + 4 = 14.
constexpr ElementSizes kSizes{3, 5, 2};

TEST(Cost, OfACausalRingByHand) {  // 6 tokens over 3 ranks; see Ring.CausalContiguousDropsHops...
  const PlanCost c =
      cost(make_plan(PackedLayout({0, 6}), Mask::causal(), 3, {"p2p"}, 4, 2), kSizes);
  ASSERT_EQ(c.pairs.ranks(), 3);
  ASSERT_EQ(c.pairs.steps(), 3);
  const int64_t pairs[3][3] = {{3, 0, 0}, {3, 4, 0}, {3, 4, 4}};  // of one head
  const int64_t hops_out[3][3] = {{0, 1, 0}, {0, 1, 1}, {0, 0, 0}};
  const int64_t hops_in[3][3] = {{0, 0, 0}, {0, 1, 0}, {0, 1, 1}};
  const int64_t rows_kv[3][3] = {{2, 0, 0}, {2, 2, 0}, {2, 2, 2}};
  for (int rank = 0; rank < 3; ++rank)
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(c.pairs(rank, step), 4 * pairs[rank][step]);
      EXPECT_EQ(c.bytes_sent(rank, step),
                hops_out[rank][step] * 2 * 2 * 16);  // 2 rows of 2 kv heads
      EXPECT_EQ(c.bytes_received(rank, step), hops_in[rank][step] * 2 * 2 * 16);
      EXPECT_EQ(c.rows_q(rank, step), 2);
      EXPECT_EQ(c.rows_kv(rank, step), rows_kv[rank][step]);
    }
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(c.result_bytes_sent[rank], 0) << "queries never left";
  EXPECT_EQ(c.pairs.sum(2), 4 * 11);
  EXPECT_EQ(c.all_bytes_received(2), 128);
  EXPECT_EQ(c.all_bytes_sent(1), 128);
  EXPECT_DOUBLE_EQ(c.imbalance(), 11 * 3 / 21.0);
}

TEST(Cost, OfAnAllGatherCountsNoCopyToOneself) {  // 2 and 3 rows
  const PlanCost c = cost(make_plan(PackedLayout({0, 5}), Mask::full(), 2, {"all_gather"}), kSizes);
  EXPECT_EQ(c.all_bytes_sent(0), 2 * 16);
  EXPECT_EQ(c.all_bytes_received(0), 3 * 16);
  EXPECT_EQ(c.all_bytes_sent(1), 3 * 16);
  EXPECT_EQ(c.rows_kv(0, 0), 5);
  EXPECT_EQ(c.rows_q(0, 0), 2);
}

TEST(Cost, OfAnAllToAllCountsResultsOnTheirWayHome) {  // 1 and 2 rows, 3 heads: rank 0 gets one
  const PlanCost c = cost(make_plan(PackedLayout({0, 3}), Mask::full(), 2, {"a2a"}, 3, 3), kSizes);
  EXPECT_EQ(c.bytes_sent(0, 0), 1 * 2 * (6 + 16));  // 1 row of 2 heads
  EXPECT_EQ(c.bytes_received(0, 0), 2 * 1 * (6 + 16));
  EXPECT_EQ(c.result_bytes_sent[0], 2 * 1 * 14);
  EXPECT_EQ(c.result_bytes_received[0], 1 * 2 * 14);
  EXPECT_EQ(c.all_bytes_sent(0), 44 + 28);
  EXPECT_EQ(c.all_bytes_received(1), 44 + 28);
  EXPECT_EQ(c.pairs.sum(0), 9);
  EXPECT_EQ(c.pairs.sum(1), 18);
}

TEST(Cost, OfOneRankIsNoTraffic) {
  for (const Transport& comm :
       {Transport{"p2p"}, Transport{"all_gather"}, Transport{"a2a"}, Transport{"a2a+p2p", 1}}) {
    const PlanCost c = cost(make_plan(PackedLayout({0, 4}), Mask::causal(), 1, comm));
    EXPECT_EQ(c.all_bytes_sent(0) + c.all_bytes_received(0), 0);
    EXPECT_EQ(c.pairs.sum(0), 10);
    EXPECT_EQ(c.imbalance(), 1.0);
  }
}

TEST(Cost, ImbalanceIsMaxOverMean) {  // causal halves of 4 tokens: 3 and 7 pairs
  EXPECT_DOUBLE_EQ(cost(make_plan(PackedLayout({0, 4}), Mask::causal(), 2, {"p2p"})).imbalance(),
                   1.4);
}

TEST(Cost, NoWorkIsBalanced) {
  EXPECT_EQ(cost(make_plan(PackedLayout(), Mask::full(), 3, {"p2p"})).imbalance(), 1.0);
  EXPECT_EQ(cost(make_plan(PackedLayout({0, 0}, {0, 9}), Mask::full(), 3, {"a2a"})).imbalance(),
            1.0);
}

TEST(Cost, LongSequencesDoNotOverflow) {
  const PackedLayout layout({0, 1 << 20});
  const PlanCost c = cost(make_plan(layout, Mask::full(), 2, {"p2p"}, 64, 64));
  EXPECT_EQ(c.pairs.sum(0), int64_t{64} << 39);
  EXPECT_EQ(c.all_bytes_sent(0), (int64_t{1} << 19) * 64 * 256 * 2);
}

TEST(Cost, WorkIsTheSameForEveryPlanAndWhatIsSentIsReceived) {
  testing::Random random(71);
  for (int i = 0; i < 200; ++i) {
    const Problem problem = testing::random_problem(random);
    const Plan plan = testing::random_plan(random, problem);
    const PlanCost c = cost(plan, kSizes);
    int64_t pairs = 0, sent = 0, received = 0, want = 0;
    for (int rank = 0; rank < plan.cp_size(); ++rank) {
      pairs += c.pairs.sum(rank);
      sent += c.all_bytes_sent(rank);
      received += c.all_bytes_received(rank);
    }
    for (int s = 0; s < problem.layout_q.batch(); ++s)
      for (int q = 0; q < problem.layout_q.len(s); ++q)
        for (int k = 0; k < problem.layout_k.len(s); ++k)
          want += problem.mask.allows(q, k, problem.layout_q.len(s), problem.layout_k.len(s));
    ASSERT_EQ(pairs, want * problem.num_heads);
    ASSERT_EQ(sent, received);
    ASSERT_GE(c.imbalance(), 1.0);
    ASSERT_LE(c.imbalance(), plan.cp_size());
  }
}

}  // namespace
}  // namespace ringside
