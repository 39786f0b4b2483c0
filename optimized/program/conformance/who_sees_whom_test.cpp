// Who sees what is not finite, or huge, and nobody else: every kernel, by each family that takes
// it, agrees with the CPU executor, or keeps its bits. Random cases are in conformance_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/device/processors.h"
#include "optimized/program/conformance/test_device_run.h"

namespace ringside {
namespace {

using testing::DeviceCase;
using testing::DeviceRun;
using testing::expect_same_bits;
using testing::Random;
using testing::TypeInfo;
using testing::why_not;

// Keys of NaN late in a document, of which blocks of queries see some.
TEST(CudaProgram, GivesTheSameGradientsAgainWhereKeysAreNotFinite) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(13);
  const PackedLayout layout(std::vector<int32_t>{0, 400, 450});
  for (const int dim : {128, 64}) {
    const TypeInfo type = dim == 64 ? testing::kFloat16 : testing::kBFloat16;
    DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 4, 2}, dim);
    Tensor& k = device_case.c.k;
    for (const int key : {100, 160, 333})
      k.data[(size_t(key) * 2 + 1) * size_t(dim) + 40] = key == 333 ? INFINITY : NAN;
    const DeviceRun run(device_case, type);
    SCOPED_TRACE(std::to_string(dim) + " by " + run.family());
    run.expect_forward(), run.expect_backward(), run.expect_same_backward();
  }
}

// check(type, head dimension, family) for every compiled one; of the interpreter half of them.
template <typename Check>
void for_each_kernel(Check check) {
  const bool few = std::getenv("RINGSIDE_FEW_CASES") != nullptr;
  for (const TypeInfo& type : {testing::kFloat32, testing::kFloat16, testing::kBFloat16})
    for (const int dim : {64, 128, 192, 256})
      for (const std::string_view family : {"", "mma"}) {
        if (type.type == ElementType::float32 && family == "mma") continue;
        const bool is_odd = (type.type == ElementType::bfloat16) != (family == "mma");
        if (few && dim / 64 % 2 == is_odd) continue;
        SCOPED_TRACE(concat(type.name, ", ", dim, " ", family));
        check(type, dim, family);
      }
}

// Of a block of keys nobody sees the second half, or some of it; it is NaN. Forward in place.
TEST(CudaProgram, LeavesOutKeysThatNobodySees) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(14);
  const std::vector<int32_t> queries{0, 64, 84, 85, 185}, keys{0, 128, 228, 528, 700};
  const PackedLayout layout_q(queries), layout_k(keys);
  for_each_kernel([&](const TypeInfo& type, int dim, std::string_view family) {
    DeviceCase device_case(random, type, {layout_q, layout_k, Mask::causal(), 2, 1}, dim);
    for (Tensor* x : {&device_case.c.k, &device_case.c.v})
      for (size_t seq = 0; seq + 1 < keys.size(); ++seq)
        for (int row = keys[seq] + queries[seq + 1] - queries[seq]; row < keys[seq + 1]; ++row)
          std::fill_n(x->at(row, 0), x->dim, NAN);
    const DeviceRun run(device_case, type, family);
    run.expect_forward(), run.expect_backward();
  });
}

// A key whose scores are all -inf weighs nothing, but it is seen: NaN in its value, or an infinity
// there or of its own, reaches whom it reaches by the definition, in blocks that all rows see and
// in others.
TEST(CudaProgram, KeysOfInfinitelySmallScores) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(15);
  const PackedLayout layout(std::vector<int32_t>{0, 300, 340});
  for_each_kernel([&](const TypeInfo& type, int dim, std::string_view family) {
    DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 2, 1}, dim);
    auto& [problem, plan, capacity, c, deterministic] = device_case;
    for (double& x : c.q.data) x = std::max(std::abs(x), 0.5);
    for (const int key : {30, 100, 310}) std::fill_n(c.k.at(key, 0), dim, -INFINITY);
    std::fill_n(c.v.at(30, 0), dim, NAN), std::fill_n(c.v.at(310, 0), dim, INFINITY);
    const DeviceRun run(device_case, type, family);
    run.expect_forward(), run.expect_backward();
  });
}

// A row's largest score is to be found where all of them are below zero, too: beside another one
// its weight overflows.
TEST(CudaProgram, ScoresFarBelowZero) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(23);
  const PackedLayout layout(std::vector<int32_t>{0, 300, 340});
  for_each_kernel([&](const TypeInfo& type, int dim, std::string_view family) {
    DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 2, 1}, dim);
    Tensor& k = device_case.c.k;
    for (double& x : device_case.c.q.data) x = std::abs(x);
    for (int row = 0; row < k.rows; ++row)
      for (int d = 0; d < dim; ++d)
        k.at(row, 0)[d] *= k.at(row, 0)[d] < 0 ? 1 << 3 * (row % 3) : -1;
    DeviceRun(device_case, type, family).expect_forward();
  });
}

// Blocks of queries that begin at the segment's rows and at the first that sees an item of keys
// overlap; one of either is clear where the other is not.
TEST(CudaProgram, QueriesThatAreNotFiniteReachTheKeysOfTheirWindow) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(16);
  const PackedLayout layout(std::vector<int32_t>{0, 600});
  for_each_kernel([&](const TypeInfo& type, int dim, std::string_view family) {
    const Problem problem{layout, layout, Mask::sliding_window(300, 40)};
    DeviceCase device_case(random, type, problem, dim);
    const int rows[] = {20, 230, 300, 510};  // a column each
    for (int i = 0; i < 4; ++i) device_case.c.dout.at(rows[i], 0)[i] = NAN;
    *device_case.c.q.at(540, 0) = NAN;
    const DeviceRun run(device_case, type, family);
    run.expect_forward(), run.expect_backward();
  });
}

// As many documents as keep processors busy, of several items of keys each: on Hopper GPUs these
// add to dq in turn, and the last one leaves final ones, to which a second launch adds what
// infinite keys of two items do.
TEST(CudaProgram, ManyDocumentsLeaveFinalGradientsOfWhatIsNotFinite) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(18);
  std::vector<int32_t> offsets{0};
  for (int i = 0; i < processors_of_device() / 5 + 1; ++i) offsets.push_back(offsets.back() + 390);
  const PackedLayout layout(offsets);
  for (const bool in_order : {false, true}) {
    const TypeInfo type = in_order ? testing::kFloat16 : testing::kBFloat16;
    DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 2, 2}, 128);
    auto& [problem, plan, capacity, c, deterministic] = device_case;
    deterministic = in_order;
    c.k.at(5, 0)[7] = INFINITY, c.k.at(300, 0)[7] = -INFINITY;
    const DeviceRun run(device_case, type);
    SCOPED_TRACE(run.family());
    run.expect_forward(), run.expect_backward();
  }
}

// Others of a warp whose q and k become larger by `times`: their scores outgrow the largest so far
// by much. with_dq: where Hopper's kernels add up dq of two items, whose order does not matter.
void expect_rows_keep_their_bits(DeviceCase& device_case, const TypeInfo& type,
                                 std::string_view family, bool with_dq = false, double times = 16) {
  constexpr int kFirstOther = 148;
  std::vector<double> out[2], dq[2];
  for (int i = 0; i < 2; ++i) {
    const DeviceRun run(device_case, type, family);
    run.forward();
    out[i] = run.output();
    out[i].resize(size_t{kFirstOther} * 2 * device_case.c.v.dim);
    if (with_dq && run.family() == std::string_view("hopper")) {
      dq[i] = run.query_gradients();
      dq[i].resize(size_t{kFirstOther} * 2 * device_case.c.q.dim);
    }
    for (Tensor* x : {&device_case.c.q, &device_case.c.k})
      for (int row = kFirstOther; row < x->rows; ++row)
        std::for_each_n(x->at(row, 0), x->heads * x->dim, [&](double& number) { number *= times; });
  }
  expect_same_bits("out", out[0], out[1]);
  expect_same_bits("dq", dq[0], dq[1]);
}

TEST(CudaProgram, RowsKeepTheirBitsWhateverOthersSee) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(17);
  const PackedLayout layout(std::vector<int32_t>{0, 200});
  for_each_kernel([&](const TypeInfo& type, int dim, std::string_view family) {
    DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 2, 1}, dim);
    expect_rows_keep_their_bits(device_case, type, family);
  });
}

// Scores far beyond the cap, or closer to it, which are bent otherwise than those near zero, lie
// beside them: where the largest one is found before it is bent, and, with ALiBi, behind.
TEST(CudaProgram, RowsKeepTheirBitsWhateverOthersAreCapped) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  struct Capped {
    double cap, times;
    bool with_alibi;
  };
  Random random(18);
  const PackedLayout layout(std::vector<int32_t>{0, 200});
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16})
    for (const auto& [cap, times, with_alibi] : {Capped{10, 16, false},
                                                 {10, 16, true},
                                                 {5, 16, false},
                                                 {20, 16, false},
                                                 {20, 2, false},
                                                 {30, 2, false}}) {
      DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 2, 1}, 128);
      device_case.c.options.softcap = cap;
      if (with_alibi) device_case.c.options.alibi_slopes = {0.05, 0.02};
      SCOPED_TRACE(concat(type.name, ", a cap of ", cap, with_alibi ? " with ALiBi" : "",
                          ", others' q and k times ", times));
      expect_rows_keep_their_bits(device_case, type, "", true, times);
      DeviceRun(device_case, type).expect_forward();
    }
}

// An infinite score becomes the cap, of its sign: of -inf alone a row is as of others. What is not
// seen is NaN, infinite or neither, in whole blocks and in others; then a key that is seen is NaN.
TEST(CudaProgram, InfiniteScoresBecomeTheCap) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(20);
  const PackedLayout layout(std::vector<int32_t>{0, 300, 340, 360});
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16})
    for (const double cap : {3., 12.}) {
      DeviceCase device_case(random, type, {layout, layout, Mask::causal(), 2, 1}, 128);
      testing::RandomCase& c = device_case.c;
      c.options.softcap = cap;
      for (double& x : c.q.data) x = std::max(std::abs(x), 0.5);
      for (const int key : {0, 1, 100, 300, 310, 340}) std::fill_n(c.k.at(key, 0), 128, -INFINITY);
      for (const int key : {150, 320}) std::fill_n(c.k.at(key, 0), 128, INFINITY);
      std::fill_n(c.k.at(359, 0), 128, NAN);
      SCOPED_TRACE(concat(type.name, ", a cap of ", cap));
      DeviceRun(device_case, type).expect_forward();
      *c.k.at(200, 0) = NAN;
      DeviceRun(device_case, type).expect_forward(true);

      const PackedLayout block(std::vector<int32_t>{0, 128});
      DeviceCase of_nothing_else(random, type, {block, block, Mask::full(), 2, 1}, 128);
      of_nothing_else.c.options.softcap = cap;
      for (double& x : of_nothing_else.c.q.data) x = std::max(std::abs(x), 0.5);
      std::ranges::fill(of_nothing_else.c.k.data, -INFINITY);
      DeviceRun(of_nothing_else, type).expect_forward(true);
    }
}

// The product of their denominators overflows, of a row that none of them outgrows; of all rows,
// and of those that a lane has as its second ones alone.
TEST(CudaProgram, ScoresFarBeyondTheCapLeaveOthersOfTheirRow) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(22);
  const PackedLayout layout(std::vector<int32_t>{0, 256});
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16})
    for (const int first : {0, 8})
      for (const auto& [cap, q] : {std::pair{3., 10.}, {12., 50.}}) {
        DeviceCase device_case(random, type, {layout, layout, Mask::full(), 1, 1}, 128);
        testing::RandomCase& c = device_case.c;
        c.options.softcap = cap;
        for (int row = 0; row < 256; ++row) {
          const bool is_small = row >= 128 && row % 16 == 9;
          c.q.at(row, 0)[0] = row % 16 < first ? 0 : q;
          c.k.at(row, 0)[0] = is_small ? -5 : row < 128 ? 48 : 48 + 10 / q;
          std::fill_n(c.q.at(row, 0) + 1, 127, 0);
          if (is_small) std::fill_n(c.v.at(row, 0), 128, 64);
        }
        SCOPED_TRACE(concat(type.name, ", a cap of ", cap, ", rows from ", first, " on"));
        DeviceRun(device_case, type).expect_forward(true);
      }
}

// Nothing that is seen counts as hidden: not the lowest number either, which three products of
// numbers of eight bits have as their sum.
TEST(CudaProgram, TheLowestScoreBecomesTheCap) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(21);
  const PackedLayout layout(std::vector<int32_t>{0, 100});
  for (const double cap : {3., 12.}) {
    DeviceCase device_case(random, testing::kBFloat16, {layout, layout, Mask::causal(), 1, 1}, 128);
    testing::RandomCase& c = device_case.c;
    c.options.softcap = cap;
    for (double& x : c.k.data) x = std::abs(x);  // others become the cap, of that sign, as well
    std::fill_n(c.q.at(80, 0), 128, 0);
    for (int d = 0; d < 3; ++d)
      c.q.at(80, 0)[d] = -std::ldexp(1, 64), c.k.at(70, 0)[d] = std::ldexp(255, 56 - 8 * d);
    std::fill_n(c.v.at(70, 0), 128, 64);  // one of 81 weights, which are the same
    SCOPED_TRACE(cap);
    DeviceRun(device_case, testing::kBFloat16).expect_forward();
  }
}

}  // namespace
}  // namespace ringside
