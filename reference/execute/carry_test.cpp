// What exchanges do to data. The rows that a buffer claims to hold, their transposes, and what
// nobody sends.
#include "reference/execute/carry.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::Random;

template <typename Visit>  // visit(plan, step, operand) for every exchange of random plans
void for_each_exchange(Visit visit) {
  Random random(17);
  for (int i = 0; i < 150; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    for (int step = 0; step < plan.num_steps(); ++step)
      for (const Operand operand : {Operand::q, Operand::kv}) visit(plan, step, operand);
  }
}

// One tensor for each rank's buffer just before `step`; value(row of the pack, head, d) fills it.
template <typename Value>
PerRank fill(const Plan& plan, int step, Operand operand, int dim, Value value) {
  const auto& layout = operand == Operand::q ? plan.problem.layout_q : plan.problem.layout_k;
  PerRank filled;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Buffer& buffer = resident_before(plan, rank, step, operand);
    Tensor& x =
        filled.emplace_back(num_rows(plan.shards[buffer.shard]), buffer.heads.size(), dim, 0);
    for (const Segment& s : plan.shards[buffer.shard])
      for (int i = 0; i < s.len; ++i)
        for (int head = 0; head < x.heads; ++head)
          for (int d = 0; d < dim; ++d)
            x.at(s.row + i, head)[d] =
                value(layout.row_begin(s.seq) + s.pos + i * s.stride, buffer.heads.begin + head, d);
  }
  return filled;
}

double dot(const PerRank& x, const PerRank& y) {
  double sum = 0;
  for (size_t rank = 0; rank < x.size(); ++rank)
    for (size_t i = 0; i < x[rank].data.size(); ++i) sum += x[rank].data[i] * y[rank].data[i];
  return sum;
}

void expect_same(const PerRank& want, const PerRank& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t rank = 0; rank < want.size(); ++rank) {
    ASSERT_EQ(want[rank].rows, got[rank].rows);
    ASSERT_EQ(want[rank].heads, got[rank].heads);
    ASSERT_EQ(want[rank].data, got[rank].data) << "rank " << rank;  // NaN is equal to nothing
  }
}

double name_of_cell(int row, int head, int d) { return row * 100 + head * 10 + d; }

// Two ranks that own two rows each of one sequence, and two heads.
Plan two_by_two(const std::string& comm) {
  const PackedLayout layout({0, 4});
  const Problem problem{layout, layout, Mask::full(), 2, 2};
  return build_plan(problem, place(problem, "contiguous", 2), {comm});
}

TEST(Carry, BringsTheRowsAndHeadsThatTheBufferClaims) {
  for_each_exchange([](const Plan& plan, int step, Operand operand) {
    expect_same(fill(plan, step + 1, operand, 2, name_of_cell),
                carry(plan, step, operand, fill(plan, step, operand, 2, name_of_cell)));
  });
}

TEST(Carry, BackIsTheTransposeToTheLastBit) {
  Random random(23);
  const auto small = [&](int, int, int) { return static_cast<double>(random.integer(-9, 9)); };
  for_each_exchange([&](const Plan& plan, int step, Operand operand) {
    const PerRank x = fill(plan, step, operand, 3, small);
    const PerRank y = fill(plan, step + 1, operand, 3, small);
    const PerRank ex = carry(plan, step, operand, x), ety = carry_back(plan, step, operand, y);
    ASSERT_EQ(dot(ex, y), dot(x, ety));
    for (int rank = 0; rank < plan.cp_size(); ++rank)
      ASSERT_EQ(x[rank].data.size(), ety[rank].data.size());
  });
}

TEST(Carry, RowsThatNobodySendsStayPoisoned) {
  Plan plan = two_by_two("all_gather");
  plan.steps_of_rank[1][0].before.receives.erase(
      plan.steps_of_rank[1][0].before.receives.begin());  // what rank 0 sends
  const PerRank got =
      carry(plan, 0, Operand::kv, fill(plan, 0, Operand::kv, 1, [](int, int, int) { return 1; }));
  for (int head = 0; head < 2; ++head)
    for (int row = 0; row < 4; ++row) {
      EXPECT_EQ(*got[0].at(row, head), 1);
      EXPECT_EQ(std::isnan(*got[1].at(row, head)), row < 2) << "row " << row;
    }
}

TEST(Carry, ABufferThatNothingMovesIsKept) {
  const Plan plan = two_by_two("p2p");
  const PerRank q = fill(plan, 0, Operand::q, 2, name_of_cell);
  for (int step = 0; step < 2; ++step) {
    expect_same(q, carry(plan, step, Operand::q, q));
    expect_same(q, carry_back(plan, step, Operand::q, q));
  }
}

TEST(Carry, OneHopMovesKeysToTheNextRank) {
  const Plan plan = two_by_two("p2p");
  const PerRank own = fill(plan, 0, Operand::kv, 2, name_of_cell);
  const PerRank got = carry(plan, 1, Operand::kv, own);
  EXPECT_EQ(got[0].data, own[1].data);
  EXPECT_EQ(got[1].data, own[0].data);
}

TEST(CarryBack, SumsWhatWasCopiedToMany) {  // both ranks got every row: gradients add up
  const Plan plan = two_by_two("all_gather");
  const PerRank g = fill(plan, 1, Operand::kv, 1, [](int row, int, int) { return 1.0 + row; });
  const PerRank home = carry_back(plan, 0, Operand::kv, g);
  for (int rank = 0; rank < 2; ++rank)
    for (int row = 0; row < 2; ++row) EXPECT_EQ(*home[rank].at(row, 1), 2 * (1 + 2 * rank + row));
}

TEST(CarryBackResults, ComeHomeFromEveryRangeOfHeads) {
  const Plan plan = two_by_two("a2a");
  std::vector<Partial> results, home;
  for (int rank = 0; rank < 2; ++rank) {
    Partial& at = results.emplace_back(4, 1, 1);  // all rows of head `rank`
    home.emplace_back(2, 2, 1);
    for (int row = 0; row < 4; ++row) {
      const double out = name_of_cell(row, rank, 0);
      at.merge(row, 0, &out, 0.5);
    }
  }
  carry_back_results(plan, 0, results, home);
  for (int rank = 0; rank < 2; ++rank)
    for (int row = 0; row < 2; ++row)
      for (int head = 0; head < 2; ++head) {
        EXPECT_EQ(*home[rank].out.at(row, head), name_of_cell(2 * rank + row, head, 0));
        EXPECT_EQ(*home[rank].lse.at(row, head), 0.5);
      }
}

TEST(CarryBackResults, MergeIntoWhatIsThereAlready) {
  const Plan plan = two_by_two("p2p");  // queries stay
  std::vector<Partial> results, home;
  for (int rank = 0; rank < 2; ++rank) {
    results.emplace_back(2, 2, 1);
    home.emplace_back(2, 2, 1);
    const double one = 1, three = 3;
    home[rank].merge(1, 0, &one, 0);
    results[rank].merge(1, 0, &three, 0);
  }
  carry_back_results(plan, 0, results, home);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(*home[rank].out.at(1, 0), 2);
    EXPECT_DOUBLE_EQ(*home[rank].lse.at(1, 0), std::log(2.0));
    EXPECT_EQ(*home[rank].lse.at(0, 0), kNegInf);
  }
}

TEST(Shard, GivesEachRankItsRowsInOrder) {
  const PackedLayout layout({0, 2, 5}, {0, 4, 8});
  Tensor x(8, 1, 2, 0);
  for (int row = 0; row < 8; ++row) x.at(row, 0)[0] = x.at(row, 0)[1] = row;
  const auto parts = shard(layout, make_shards(find_partition("striped"), layout, 2), x);
  EXPECT_EQ(parts[1].rows, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(parts[1].at(i, 0)[1], 2 * i + 1);
}

TEST(Shard, UnshardIsItsInverse) {
  Random random(29);
  for (int i = 0; i < 200; ++i) {
    const PackedLayout layout = testing::random_layout(random, random.integer(0, 4));
    Tensor x(layout.num_rows(), random.integer(1, 3), random.integer(1, 3), 0);
    for (double& value : x.data) value = random.normal();
    const auto& partition = testing::random_partition(random);
    const Problem problem{layout, layout, Mask::causal(), 1, 1};
    const auto shards = own_rows(partition, problem, random.integer(1, 6)).q;
    const Tensor back = unshard(layout, shards, shard(layout, shards, x));
    ASSERT_EQ(back.data, x.data) << partition.name;
    ASSERT_EQ(back.rows, x.rows);
  }
}

}  // namespace
}  // namespace ringside
