// Every plan, run on the CPU, agrees with the definition, forward and backward.
#include "reference/execute/execute.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::Random;
using testing::RandomCase;

// lse is [heads, rows] in the definition and [rows, heads] in a tensor.
std::vector<double> heads_first(const Tensor& lse) {
  std::vector<double> x(lse.data.size());
  for (int row = 0; row < lse.rows; ++row)
    for (int head = 0; head < lse.heads; ++head)
      x[static_cast<size_t>(head) * lse.rows + row] = *lse.at(row, head);
  return x;
}

// The two add the same numbers in another order: float64 rounding of sums of up to ~100 terms of
// size ~10 stays far below 1e-12; any fault of indexing is of order 1.
void expect_equal(const std::vector<double>& want, const std::vector<double>& got,
                  const char* what) {
  ASSERT_EQ(want.size(), got.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got[i]) continue;  // -inf too
    ASSERT_LE(std::abs(want[i] - got[i]), 1e-12 * std::max(1.0, std::abs(want[i])))
        << what << "[" << i << "]";
  }
}

class EveryPlan : public ::testing::TestWithParam<unsigned> {};

TEST_P(EveryPlan, IsProvedAndAgreesWithTheDefinition) {
  Random random(GetParam());
  for (int i = 0; i < 50; ++i) {
    const Problem problem = testing::random_problem(random);
    const Plan plan = testing::random_plan(random, problem);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + plan.partition + " over " + plan.comm +
                 ", cp_size " + std::to_string(plan.cp_size()));
    ASSERT_NO_THROW(verify(plan));
    const RandomCase c(random, problem);
    const auto want = oracle::forward(c.definition(), c.arrays());
    const auto got = attention(plan, c.inputs());
    expect_equal(want.out, got.out.data, "out");
    expect_equal(want.lse, heads_first(got.lse), "lse");
    expect_equal(want.max_logit, got.max_logit, "max_logit");
    const auto want_grads = oracle::backward(c.definition(), c.arrays(), c.dout.data.data(), want);
    const auto got_grads = attention_backward(plan, c.inputs(), c.dout, got);
    expect_equal(want_grads.dq, got_grads.dq.data, "dq");
    expect_equal(want_grads.dk, got_grads.dk.data, "dk");
    expect_equal(want_grads.dv, got_grads.dv.data, "dv");
    expect_equal(want_grads.dsink, got_grads.dsink, "dsink");
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EveryPlan, ::testing::Range(0u, 40u));

}  // namespace
}  // namespace ringside
