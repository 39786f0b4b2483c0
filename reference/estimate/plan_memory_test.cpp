// A few rows on very many ranks: refused at once where no machine holds it, and only there.
#include "reference/estimate/plan_memory.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <string>
#include <vector>

#include "reference/estimate/estimate.h"
#include "reference/estimate/plan_size.h"
#include "reference/support/errors.h"
#include "reference/support/memory.h"
#include "reference/test_support/test_errors.h"

namespace ringside {
namespace {

using testing::expect_error;

constexpr int kMillion = 1'000'000;  // of ranks: their square times any number is too much

Problem twelve_rows() {
  const PackedLayout layout({0, 5, 12});
  return {layout, layout, Mask::causal(), 1, 1};
}

TEST(CheckMemory, RefusesStepsThatNoMachineHolds) {
  const Placement placement = place(twelve_rows(), "zigzag", kMillion);
  expect_error<InvalidArgument>(
      [&] { check_tiles(twelve_rows(), placement, {"p2p"}, kMaxTiles); },
      {"cp_size=1000000: the steps of all ranks would take about ", "expected at most ",
       "what this machine has. Pass fewer ranks, such as ", "or comm=\"all_gather\""});
  expect_error<InvalidArgument>([&] { estimate(twelve_rows(), placement, {"p2p"}); },
                                {"cp_size=1000000: counts of all ranks and steps", "fewer ranks"});
  expect_error<InvalidArgument>(
      [&] {
        check_memory_of_plan(twelve_rows(), placement, {"a2a+p2p", 2});
      },
      {"fewer ranks"});
  expect_error<InvalidArgument>([&] { check_memory_of_plan(twelve_rows(), placement, {"fetch"}); },
                                {"fewer ranks, such as "});
}

TEST(CheckMemory, TakesAsManyRanksWhoseStepsAreFew) {
  const Placement placement = place(twelve_rows(), "zigzag", kMillion);
  for (const char* comm : {"all_gather", "a2a"})
    EXPECT_NO_THROW(check_memory_of_plan(twelve_rows(), placement, {comm})) << comm;
  for (const char* comm : {"all_gather", "a2a", "fetch"})
    EXPECT_NO_THROW(check_memory_of_cost(twelve_rows(), placement, {comm})) << comm;
}

// Ranks whose every pair would fit, and whose steps do not.
TEST(CheckMemory, RefusesHopsOfARingThatAFewRowsMake) {
  const int cp_size = static_cast<int>(std::sqrt(bytes_of_memory() / 6));
  const Placement placement = place(twelve_rows(), "zigzag", cp_size);
  const std::string got = "cp_size=" + std::to_string(cp_size);
  expect_error<InvalidArgument>([&] { check_memory_of_plan(twelve_rows(), placement, {"p2p"}); },
                                {got.c_str(), "the steps of all ranks would take about "});
}

// Each document on one rank: no keys travel, however many ranks the ring has.
TEST(CheckMemory, CountsTheStepsThatThereAre) {
  const Problem problem = twelve_rows();
  Placement placement{std::vector<Shard>(20'000), {}, "mine"};
  placement.q[7] = {{0, 0, 1, 0, 5}}, placement.q[9'000] = {{1, 0, 1, 0, 7}};
  placement.k = placement.q;
  EXPECT_NO_THROW(check_memory_of_plan(problem, placement, {"p2p"}));
}

TEST(CheckMemory, NamesNoOtherCommWhereThatIsTooMuch) {
  const PackedLayout layout({0, kMillion});
  const Problem problem{layout, layout, Mask::causal(), 1, 1};
  const Placement placement = place(problem, "contiguous", kMillion);
  expect_error<InvalidArgument>(
      [&] { check_memory_of_plan(problem, placement, {"all_gather"}); },
      {"the steps of all ranks would take about 447", "fewer ranks, such as "});
  try {
    check_memory_of_plan(problem, placement, {"p2p"});
    ADD_FAILURE() << "expected a refusal";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()).find("all_gather"), std::string::npos) << error.what();
  }
}

TEST(CheckCpSize, RefusesRanksThatNoMemoryHolds) {
  EXPECT_NO_THROW(check_cp_size(1));
  EXPECT_NO_THROW(check_cp_size(kMillion));
  expect_error<InvalidArgument>([] { check_cp_size(0); }, {"cp_size=0", "at least 1 rank"});
  if (bytes_of_memory() > 350e9) GTEST_SKIP() << "this machine holds as many as can be counted";
  expect_error<InvalidArgument>([] { place(twelve_rows(), "zigzag", INT_MAX); },
                                {"cp_size=2147483647: one step of all ranks would take about ",
                                 "what this machine has. Pass fewer ranks"});
}

TEST(CheckMemory, LeavesWhatDoesNotFitTogetherToOthers) {
  const Placement placement = place(twelve_rows(), "zigzag", kMillion);
  Placement unlike = placement;
  unlike.k.pop_back();
  EXPECT_NO_THROW(check_memory_of_plan(twelve_rows(), unlike, {"p2p"}));
  EXPECT_NO_THROW(check_memory_of_plan(twelve_rows(), placement, {"a2a+p2p", 3}));
  EXPECT_NO_THROW(check_memory_of_plan(twelve_rows(), placement, {"a2a+p2p"}));
  EXPECT_NO_THROW(check_memory_of_plan(twelve_rows(), {}, {"p2p"}));
}

}  // namespace
}  // namespace ringside
