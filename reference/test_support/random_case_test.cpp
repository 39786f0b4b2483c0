// What the random tests draw: enough of what matters, other cases in every run, and some that stay.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "reference/plan/cost.h"
#include "reference/test_support/test_random_case.h"

namespace ringside::testing {
namespace {

struct Shares {
  double no_document = 0, no_pair = 0, several_ranks = 0;
};

Shares shares_of(Random random, int cases) {
  Shares shares;
  for (int i = 0; i < cases; ++i) {
    const Problem problem = random_problem(random);
    const Plan plan = random_plan(random, problem);
    const PlanCost work = cost(plan);
    int busy = 0;
    for (int rank = 0; rank < plan.cp_size(); ++rank) busy += work.pairs.sum(rank) > 0;
    shares.no_document += problem.layout_q.batch() == 0;
    shares.no_pair += busy == 0;
    shares.several_ranks += busy > 1;
  }
  for (double* share : {&shares.no_document, &shares.no_pair, &shares.several_ranks})
    *share /= cases;
  return shares;
}

TEST(RandomCase, MostHavePairsOnSeveralRanks) {
  const Shares shares = shares_of(Random(1, 1), 2000);
  EXPECT_GT(shares.several_ranks, 0.7);
  EXPECT_LT(shares.no_pair, 0.12);
  EXPECT_LT(shares.no_document, 0.08);
  EXPECT_GT(shares.no_document, 0.02);
}

std::vector<double> first_numbers(uint32_t run) {
  Random random(0, run);
  std::vector<double> numbers;
  for (int i = 0; i < 30; ++i) {
    random.begin_case();
    numbers.push_back(random.normal());
  }
  return numbers;
}

TEST(RandomCase, OneCaseInThreeIsTheSameInEveryRun) {
  const std::vector<double> one = first_numbers(1), other = first_numbers(2);
  EXPECT_EQ(one, first_numbers(1));
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_EQ(one[i] == other[i], i % kFixedShare == 0) << "case " << i;
}

TEST(RandomCase, ASeedIsANumberOrDrawn) {
  EXPECT_EQ(seed_from("17"), 17u);
  EXPECT_EQ(seed_from("4294967295"), 4294967295u);
  EXPECT_NE(seed_from(nullptr), seed_from(nullptr));  // equal once in four billion runs
  for (const char* text : {"", "-1", "x", "7 8", "4294967296"})
    EXPECT_THROW(seed_from(text), std::invalid_argument) << text;
}

}  // namespace
}  // namespace ringside::testing
