// Who holds what when, who gets another buffer, and the walk over both.
#include "reference/plan/residency.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/plan/interpret.h"
#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

// Two ranks that own two rows each of one sequence, and two heads.
Plan two_by_two(const std::string& comm) {
  const PackedLayout layout({0, 4});
  const Problem problem{layout, layout, Mask::full(), 2, 2};
  return build_plan(problem, place(problem, "contiguous", 2), {comm});
}

TEST(Transfers, PairTheNthSendWithTheNthReceiveOfEachOperand) {
  const Plan plan = two_by_two("a2a");
  for (const Operand operand : {Operand::q, Operand::kv}) {
    const auto paired = transfers(plan, 0, operand);
    EXPECT_EQ(paired.size(), 4u);  // also to oneself
    for (const Transfer& t : paired) {
      EXPECT_EQ(t.sent.peer, t.to);
      EXPECT_EQ(t.received.peer, t.from);
      EXPECT_EQ(t.sent.operand, operand);
      EXPECT_EQ(t.received.operand, operand);
      EXPECT_EQ(t.sent.heads, (Range{t.to, t.to + 1}));
      EXPECT_EQ(t.received.row, 2 * t.from);
    }
  }
}

TEST(Transfers, AReceiveWithoutASendIsRefused) {
  Plan plan = two_by_two("p2p");
  plan.steps_of_rank[0][1].before.sends.clear();
  testing::expect_error<PlanError>([&] { transfers(plan, 1, Operand::kv); },
                                   {"rank 1 step 1 receives from 0", "sends nothing"});
}

TEST(ResidentBefore, IsHomeFirstAndThenThePreviousStep) {
  const Plan plan = two_by_two("p2p");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(resident_before(plan, rank, 0, Operand::q), plan.home_q[rank]);
    EXPECT_EQ(resident_before(plan, rank, 0, Operand::kv), plan.home_kv[rank]);
    EXPECT_EQ(resident_before(plan, rank, 2, Operand::kv), plan.home_kv[1 - rank]);
  }
}

TEST(HomeShards, AreThePlacementOfEachOperand) {
  const PackedLayout q({0, 3}), k({0, 5});
  const Problem problem{q, k, Mask::full(), 1, 1};
  const Placement placement = place(problem, "zigzag", 2);
  const Plan plan = build_plan(problem, placement, {"p2p"});
  EXPECT_EQ(home_shards(plan, Operand::q), placement.q);
  EXPECT_EQ(home_shards(plan, Operand::kv), placement.k);
}

TEST(IsReplaced, WhereMessagesMoveAnOperandOrAnotherBufferIsNamed) {
  const Plan ring = two_by_two("p2p");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(is_replaced(ring, rank, 0, Operand::kv));
    EXPECT_TRUE(is_replaced(ring, rank, 1, Operand::kv));
    EXPECT_FALSE(is_replaced(ring, rank, 1, Operand::q));
  }
  Plan renamed = ring;  // no message, and yet something else is resident
  for (Step& step : renamed.steps_of_rank[0]) step.before = {};
  EXPECT_TRUE(is_replaced(renamed, 0, 1, Operand::kv));
  Plan same = ring;  // the same buffer, received anew
  same.steps_of_rank[0][1].kv = same.steps_of_rank[0][0].kv;
  EXPECT_TRUE(is_replaced(same, 0, 1, Operand::kv));
}

TEST(AnyRankMoves, IsOfAllRanks) {
  Plan plan = two_by_two("p2p");
  plan.steps_of_rank[0][1] = plan.steps_of_rank[0][0];
  EXPECT_FALSE(is_replaced(plan, 0, 1, Operand::kv));
  EXPECT_TRUE(any_rank_moves(plan, 1, Operand::kv));
  EXPECT_FALSE(any_rank_moves(plan, 1, Operand::q));
}

struct Diary {
  std::string text;
  void exchange(int step, Operand operand) {
    text += (operand == Operand::q ? "q" : "kv") + std::to_string(step) + " ";
  }
  void compute(int step) { text += "tiles" + std::to_string(step) + " "; }
  void exchange_back(int step, Operand operand) { exchange(step, operand); }
};

std::string forth(const Plan& plan) {
  Diary diary;
  interpret(plan, diary);
  return diary.text;
}

std::string back(const Plan& plan) {
  Diary diary;
  interpret_back(plan, diary);
  return diary.text;
}

TEST(Interpret, ExchangesBeforeTilesAndTilesBeforeTheExchangeOnTheWayBack) {
  EXPECT_EQ(forth(two_by_two("p2p")), "tiles0 kv1 tiles1 ");
  EXPECT_EQ(back(two_by_two("p2p")), "tiles1 kv1 tiles0 ");
  EXPECT_EQ(forth(two_by_two("a2a")), "q0 kv0 tiles0 ");
  EXPECT_EQ(back(two_by_two("a2a")), "tiles0 kv0 q0 ");
  EXPECT_EQ(forth(two_by_two("all_gather")), "kv0 tiles0 ");
}

}  // namespace
}  // namespace ringside
