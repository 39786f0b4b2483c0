// A plan through its int32 tables and back, and tables that are no plan.
#include "reference/plan/plan_tables.h"

#include <gtest/gtest.h>

#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

// Two ranks that own two rows each of one sequence, over a ring.
Plan small_plan() {
  const PackedLayout layout({0, 4});
  const Problem problem{layout, layout, Mask::causal(), 1, 1};
  return build_plan(problem, place(problem, "contiguous", 2), {"p2p"});
}

Plan from(const PlanTables& tables, const Plan& named_like) {
  Plan plan;
  plan.problem = named_like.problem;
  plan.partition = named_like.partition;
  plan.comm = named_like.comm;
  from_tables(tables, plan);
  return plan;
}

std::vector<int32_t> row(const Table& table, int i) {
  return {table.row(i), table.row(i) + table.width()};
}

using Cells = std::vector<int32_t>;

TEST(PlanTables, ComeBackAsTheSamePlan) {
  testing::Random random(41);
  for (int i = 0; i < 200; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    ASSERT_TRUE(from(to_tables(plan), plan) == plan) << plan.partition << " " << plan.comm;
  }
}

TEST(PlanTables, HoldEveryNumberOfThePlan) {
  PlanTables t = to_tables(small_plan());
  EXPECT_EQ(t.shards.columns.size(), 6u);
  ASSERT_EQ(t.shards.rows(), 4);  // the homes of q, then of kv
  EXPECT_EQ(row(t.shards, 1), (Cells{2, 0, 2, 1, 0, 2}));
  ASSERT_EQ(t.tiles.rows(), 3);
  EXPECT_EQ(row(t.tiles, 1), (Cells{2, 0, 2, 1, 0, 2, 0, 1, 0, 2}));
  EXPECT_EQ(t.homes.cells, (Cells{0, 1, 3, 1, 2, 4}));
  ASSERT_EQ(t.steps.rows(), 4);
  EXPECT_EQ(row(t.steps, 1), (Cells{0, 1, 1, 1, 0, 1, 0, 0, 0, 0}));  // rank 0 has nothing left
  EXPECT_EQ(row(t.steps, 3), (Cells{1, 1, 1, 2, 0, 1, 3, 0, 1, 2}));
  EXPECT_EQ(t.messages.cells, (Cells{0, 1, 0, 1, 1, 0, 2, 0, 1,     // rank 0 sends to 1
                                     1, 1, 1, 0, 1, 0, 2, 0, 1}));  // rank 1 receives from 0
  EXPECT_EQ(t.all().size(), std::size(kTableNames));
}

struct BadTable {
  int table, row, column;  // of PlanTables::all()
  int32_t value;
  std::vector<const char*> parts;
};
void PrintTo(const BadTable& bad, std::ostream* text) {
  *text << kTableNames[bad.table] << "_" << bad.parts[0];
}

class BadTables : public ::testing::TestWithParam<BadTable> {};

TEST_P(BadTables, AreRefused) {
  const auto& [table, at, column, value, parts] = GetParam();
  PlanTables tables = to_tables(small_plan());
  Table& changed = *tables.all()[table];
  changed.cells[at * changed.width() + column] = value;
  for (const char* part : parts)
    testing::expect_error<InvalidArgument>([&] { from(tables, small_plan()); },
                                           {kTableNames[GetParam().table], part});
}

INSTANTIATE_TEST_SUITE_P(
    Each, BadTables,
    ::testing::Values(
        BadTable{0, 0, 0, 0, {"names entry 0 after entry 0", "numbered 1, 2, ..."}},
        BadTable{0, 1, 0, 3, {"names entry 3 after entry 1", "their rows lie together"}},
        BadTable{0, 2, 0, 1, {"names entry 1 after entry 2"}},
        BadTable{1, 0, 0, -1, {"names entry -1 after entry 0"}},
        BadTable{1, 2, 0, 4, {"names entry 4 after entry 2"}},
        BadTable{2, 1, 0, 0, {"names rank 0 where rank 1 is due", "one row a rank, in order"}},
        BadTable{3, 0, 0, 2, {"names rank 2 of 2"}}, BadTable{3, 0, 0, -1, {"names rank -1 of 2"}},
        BadTable{3, 1, 1, 2, {"names step 2 of rank 0 where step 1 is due"}},
        BadTable{3, 0, 2, 4, {"names exchange kind 4", "0 to 3"}},
        BadTable{3, 0, 2, -1, {"names exchange kind -1"}},
        BadTable{4, 0, 0, 2, {"names rank 2 of 2"}},
        BadTable{4, 0, 1, 2, {"names step 2 of rank 0, which has 2"}},
        BadTable{4, 0, 1, -1, {"names step -1 of rank 0"}},
        BadTable{4, 1, 2, 2, {"row 1 has direction 2 and operand 1", "both are 0 or 1"}},
        BadTable{4, 1, 4, -1, {"row 1 has direction 1 and operand -1"}}));

}  // namespace
}  // namespace ringside
