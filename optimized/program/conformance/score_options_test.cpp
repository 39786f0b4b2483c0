// Softcap, ALiBi and dropout on the device, each with and without the others, agree with the CPU:
// some kernels are compiled for each set of them. Random cases are in conformance_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "optimized/program/conformance/test_device_run.h"

namespace ringside {
namespace {

using testing::DeviceCase;
using testing::DeviceRun;
using testing::Random;
using testing::TypeInfo;
using testing::why_not;

// Scores lie on both sides of softcap's bend, blocks of keys are whole and not.
TEST(CudaProgram, AgreesWithTheCpuWhicheverScoreOptionsMeet) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(19);
  const PackedLayout layout(std::vector<int32_t>{0, 3, 203, 360});
  for (int set = 0; set < 8; ++set) {
    const TypeInfo type = set % 2 == 0 ? testing::kFloat16 : testing::kBFloat16;
    DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 2, 1}, 128);
    auto& options = device_case.c.options;
    if (set & 1) options.softcap = 2;
    if (set & 2) options.alibi_slopes = {0.5, -0.25};
    if (set & 4) options.dropout = {0.3, 17};
    const DeviceRun run(device_case, type);
    SCOPED_TRACE(concat("set ", set, " by ", run.family()));
    run.expect_forward(true), run.expect_backward();
  }
}

// Rows far shorter than those that the kernels are compiled for: whole boxes have no column.
TEST(CudaProgram, AgreesWithTheCpuWithScoreOptionsOfShortRows) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(23);
  const PackedLayout layout(std::vector<int32_t>{0, 3, 133}), padded({0, 3, 133}, {0, 5, 140});
  const std::vector<std::array<int, 3>> cases{{64, 64, 0}, {8, 64, 1}, {56, 16, 6}, {40, 40, 7}};
  for (const auto& [qk, v, set] : cases) {
    const TypeInfo type = set % 2 == 0 ? testing::kFloat16 : testing::kBFloat16;
    DeviceCase device_case(random, type, {layout, padded, Mask::causal(), 2, 1}, qk, v);
    auto& options = device_case.c.options;
    options.sinks = {0.5, -1};
    if (set & 1) options.softcap = 2;
    if (set & 2) options.alibi_slopes = {0.5, -0.25};
    if (set & 4) options.dropout = {0.3, 17};
    device_case.deterministic = set % 2 == 0;
    const DeviceRun run(device_case, type);
    SCOPED_TRACE(concat("head dims ", qk, " and ", v, ", set ", set, " by ", run.family()));
    run.expect_forward(true), run.expect_backward();
  }
}

// Of heads that other options do not take: in place, with sinks, and by a scale of any sign.
TEST(CudaProgram, AgreesWithTheCpuWithSinksOfLongRows) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(26);
  const PackedLayout layout(std::vector<int32_t>{0, 3, 203}), padded({0, 3, 203}, {0, 5, 210});
  const std::vector<std::array<int, 2>> dims{{192, 128}, {136, 192}, {192, 136}, {256, 200}};
  for (const auto& [qk, v] : dims)
    for (const double scale : {0.1, -0.2}) {
      const TypeInfo type = scale > 0 ? testing::kBFloat16 : testing::kFloat16;
      DeviceCase device_case(random, type, {layout, padded, Mask::causal(), 2, 1}, qk, v);
      device_case.c.options.sinks = {0.5, -1}, device_case.c.options.softmax_scale = scale;
      device_case.deterministic = scale > 0;
      const DeviceRun run(device_case, type);
      SCOPED_TRACE(concat("head dims ", qk, " and ", v, ", scale ", scale, " by ", run.family()));
      EXPECT_EQ(run.program()->in_place(), std::string(run.family()) == "hopper");
      run.expect_forward(true), run.expect_backward();
    }
}

// A scale below zero turns the order of scores, and so does not go with the largest q.k.
TEST(CudaProgram, CapsScoresOfAnyScale) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(21);
  const PackedLayout layout(std::vector<int32_t>{0, 3, 203});
  for (const double scale : {-1., 0., 1e-30, 2.}) {
    DeviceCase device_case(random, testing::kFloat16, {layout, layout, Mask::causal(), 2, 1}, 128);
    for (const double cap : {4., 30.}) {
      device_case.c.options.softcap = cap, device_case.c.options.softmax_scale = scale;
      SCOPED_TRACE(concat("scale ", scale, ", a cap of ", cap));
      const DeviceRun run(device_case, testing::kFloat16);
      run.expect_forward(true), run.expect_backward();
    }
  }
}

// In a window, some rows of a block of queries see none of the first block of keys.
TEST(CudaProgram, CapsScoresOfRowsThatSeeNoneOfTheirFirstKeys) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(24);
  const PackedLayout layout(std::vector<int32_t>{0, 300, 429});
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16})
    for (const double cap : {2., 9., 50., 60.}) {
      DeviceCase device_case(random, type, {layout, layout, Mask::sliding_window(100, 20), 2, 1},
                             128);
      device_case.c.options.softcap = cap;
      SCOPED_TRACE(concat(type.name, ", a cap of ", cap));
      const DeviceRun run(device_case, type);
      run.expect_forward(), run.expect_backward();
    }
}

// Of all queries one has scores beyond the cap: whoever looks for such a score must look at each.
TEST(CudaProgram, CapsTheScoresOfOneQuery) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(22);
  const PackedLayout layout(std::vector<int32_t>{0, 140});
  for (const int row : {100, 101, 110, 111}) {
    DeviceCase device_case(random, testing::kFloat16, {layout, layout, Mask::causal(), 2, 1}, 128);
    device_case.c.options.softcap = 20;
    std::for_each_n(device_case.c.q.at(row, 0), 2 * 128, [](double& x) { x *= 32; });
    SCOPED_TRACE(row);
    const DeviceRun run(device_case, testing::kFloat16);
    run.expect_forward(), run.expect_backward();
  }
}

// Not even a last place's worth, which a large key or query would bring back.
TEST(CudaProgram, ScoresAtTheCapPassNoGradient) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(25);
  const PackedLayout layout(std::vector<int32_t>{0, 140});
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16})
    for (const double cap : {0.7, 3., 5.4, 7., 11., 13., 21.5, 30., 43., 60., 79.5}) {
      DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 2, 1}, 128);
      testing::RandomCase& c = device_case.c;
      c.options.softcap = cap, c.options.softmax_scale = 0.1;
      for (Tensor* x : {&c.q, &c.k})
        for (int row = 0; row < x->rows; ++row)
          for (int head = 0; head < x->heads; ++head)
            x->at(row, head)[0] = row % 3 == 0 ? -128 : 128;
      SCOPED_TRACE(concat(type.name, ", a cap of ", cap));
      const DeviceRun run(device_case, type);
      run.expect_forward();
      for (const double gradient : run.query_gradients()) ASSERT_EQ(gradient, 0);
    }
}

// Two rows of one lane have such scores in all blocks, and another lane's row in the third alone,
// whichever end is the first.
TEST(CudaProgram, CapsScoresThatGrowLate) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(23);
  const PackedLayout layout(std::vector<int32_t>{0, 640});
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16}) {
    DeviceCase device_case(random, type, {layout, layout, Mask::full(), 1, 1}, 128);
    testing::RandomCase& c = device_case.c;
    c.options.softcap = 20, c.options.softmax_scale = 0.1;
    for (int row = 0; row < 640; ++row)
      c.q.at(row, 0)[0] = 0, c.k.at(row, 0)[0] = row / 128 == 2 ? 10 : 0;
    for (const int row : {0, 8}) std::for_each_n(c.q.at(row, 0), 128, [](double& x) { x *= 32; });
    c.q.at(3, 0)[0] = 40;
    SCOPED_TRACE(type.name);
    DeviceRun(device_case, type).expect_forward();
  }
}

// Keys from the 70th on have one score for all queries; those before, some 0.1 of either sign.
void expect_last_keys_capped(double score, std::initializer_list<double> caps) {
  Random random(25);
  const PackedLayout layout(std::vector<int32_t>{0, 128});
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16})
    for (const double cap : caps) {
      DeviceCase device_case(random, type, {layout, layout, Mask::full(), 1, 1}, 128);
      testing::RandomCase& c = device_case.c;
      c.options.softcap = cap, c.options.softmax_scale = 1. / 128;
      for (int row = 0; row < 128; ++row) {
        c.q.at(row, 0)[0] = 32, c.k.at(row, 0)[0] = row < 70 ? 0 : 4 * score;
        if (row >= 70) std::fill_n(c.v.at(row, 0), 128, 16384);
      }
      SCOPED_TRACE(concat(type.name, ", scores of ", score, ", a cap of ", cap));
      DeviceRun(device_case, type).expect_forward();
    }
}

// What they weigh shows, small as it is, as their values are large.
TEST(CudaProgram, CapsScoresFarBelowZero) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  expect_last_keys_capped(-24, {8., 13.});
}

TEST(CudaProgram, CapsScoresFarAboveZero) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  expect_last_keys_capped(24, {8., 13., 60.});
}

}  // namespace
}  // namespace ringside
