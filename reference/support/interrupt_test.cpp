#include "reference/support/interrupt.h"

#include <gtest/gtest.h>

#include <thread>

#include "reference/attention/oracle.h"
#include "reference/execute/execute.h"
#include "reference/support/parallel.h"
#include "reference/transport/transport.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

void spin() {  // for ever, unless interrupted
  while (true) check_interrupt();
}

TEST(Interrupt, WithoutAScopeNothingIsAsked) {
  for (int i = 0; i < 1000; ++i) check_interrupt(int64_t{1} << 40);
}

TEST(Interrupt, AScopeEndsWhatItsThreadComputes) {
  const InterruptScope scope([] { return true; });
  EXPECT_THROW(spin(), Interrupted);
}

TEST(Interrupt, FewStepsAskNobody) {
  const InterruptScope scope([] { return true; });
  std::this_thread::sleep_for(2 * InterruptScope::kAskEvery);
  EXPECT_THROW(check_interrupt(), Interrupted);
  for (int64_t i = 1; i < interrupt::kStepsOfLook; ++i) check_interrupt(1);
  EXPECT_THROW(check_interrupt(1), Interrupted);
}

TEST(Interrupt, GoesOnWhileNobodyWantsItToStop) {
  int asked = 0;
  const InterruptScope scope([&] { return ++asked == 3; });
  EXPECT_THROW(spin(), Interrupted);
  EXPECT_EQ(asked, 3);
}

TEST(Interrupt, AScopeLeavesNothingBehind) {
  {
    const InterruptScope scope([] { return true; });
    EXPECT_THROW(spin(), Interrupted);
  }
  EXPECT_EQ(interrupt::watched.scope, nullptr);
  std::this_thread::sleep_for(2 * InterruptScope::kAskEvery);
  check_interrupt();
}

TEST(Interrupt, AnInnerScopeAnswersAlone) {
  const InterruptScope outer([] { return false; });
  {
    const InterruptScope inner([] { return true; });
    EXPECT_THROW(spin(), Interrupted);
  }
  std::this_thread::sleep_for(2 * InterruptScope::kAskEvery);
  check_interrupt();
}

TEST(Interrupt, ThreadsThatHelpStopButNeverAsk) {
  const auto here = std::this_thread::get_id();
  std::atomic<bool> asked_elsewhere{false};
  const InterruptScope scope([&] {
    asked_elsewhere = asked_elsewhere || std::this_thread::get_id() != here;
    return true;
  });
  EXPECT_THROW(run_together(4, spin), Interrupted);
  EXPECT_FALSE(asked_elsewhere);
}

TEST(Interrupt, AThreadThatOnlyWaitsForOthersGoesOnAsking) {
  const auto here = std::this_thread::get_id();
  const InterruptScope scope([] { return true; });
  EXPECT_THROW(run_together(2,
                            [&] {
                              if (std::this_thread::get_id() != here) spin();
                            }),
               Interrupted);
}

// One document, so long that no call below is done before it is first asked.
Problem long_problem(int tokens) {
  const PackedLayout layout({0, tokens});
  return {layout, layout, Mask::full(), 2, 2};
}

// Every token a segment of its own: as many tiles to judge as there are pairs.
std::vector<Shard> single_tokens(int tokens, int cp_size) {
  std::vector<Shard> shards(cp_size);
  for (int pos = 0; pos < tokens; ++pos) {
    Shard& shard = shards[pos % cp_size];
    shard.push_back({0, pos, 1, num_rows(shard), 1});
  }
  return shards;
}

template <typename Call>
void expect_interrupted(Call call) {
  const InterruptScope scope([] { return true; });
  EXPECT_THROW(call(), Interrupted);
}

TEST(Interrupt, EndsTheBuildingOfAPlan) {
  Problem problem = long_problem(20'000);
  problem.mask = Mask::sliding_window(0, 0);
  const auto shards = single_tokens(20'000, 2);
  expect_interrupted([&] { build_plan(problem, {shards, shards}, {}); });
}

TEST(Interrupt, EndsAProof) {
  const Problem problem = long_problem(1'000);
  const auto shards = single_tokens(1'000, 2);
  const Plan plan = build_plan(problem, {shards, shards}, {});
  expect_interrupted([&] {
    while (true) verify(plan);
  });
  EXPECT_EQ(verify(plan).pairs, int64_t{1'000} * 1'000);
}

TEST(Interrupt, EndsTheExecutorOfAPlan) {
  const int tokens = 12'000;
  const Plan plan =
      build_plan(long_problem(tokens), place(long_problem(tokens), "zigzag", 2), {"p2p", 0});
  const Tensor x(tokens, 2, 8, 1.0);
  const TensorView view{x.data.data(), tokens, 2, 8};
  expect_interrupted([&] { attention(plan, {view, view, view, {}}); });
  const AttentionOutput saved{x, Tensor(tokens, 2, 1, 0.0), {}};
  expect_interrupted([&] { attention_backward(plan, {view, view, view, {}}, view, saved); });
}

TEST(Interrupt, EndsTheDefinition) {
  const int tokens = 12'000;
  const PackedLayout layout({0, tokens});
  const oracle::Attention attention{layout, layout, Mask::full(), 1, 1, 8, 8, {}};
  const std::vector<double> x(static_cast<size_t>(tokens) * 8, 1.0);
  const oracle::Arrays arrays{x.data(), x.data(), x.data()};
  expect_interrupted([&] { oracle::forward(attention, arrays); });
  const oracle::Result saved{x, std::vector<double>(tokens, 0.0), {}};
  expect_interrupted([&] { oracle::backward(attention, arrays, x.data(), saved); });
}

}  // namespace
}  // namespace ringside
