// Every level of processor that runs here computes the same, and a wrong name is refused.
#include "reference/attention/cpu_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::expect_error;
using testing::Random;
using testing::RandomCase;

// Levels differ in the order of sums and in fused roundings, of at most some hundred terms.
void expect_near(const std::vector<double>& want, const std::vector<double>& got,
                 const char* what) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got[i]) continue;  // -inf too
    ASSERT_LE(std::abs(want[i] - got[i]), 1e-12 * std::max(1.0, std::abs(want[i])))
        << what << "[" << i << "]";
  }
}

std::vector<CpuLevel> runnable() {
  std::vector<CpuLevel> levels;
  for (const CpuLevel& level : cpu_levels())
    if (level.runs_here) levels.push_back(level);
  return levels;
}

TEST(CpuLevels, AgreeOnTheDefinition) {
  Random random(91);
  for (int i = 0; i < 100; ++i) {
    const RandomCase c(random, testing::random_problem(random));
    const CpuKernels& baseline = *cpu_levels()[0].kernels;
    const auto want = baseline.definition(c.definition(), c.arrays());
    const auto g =
        baseline.definition_backward(c.definition(), c.arrays(), c.dout.data.data(), want);
    for (const CpuLevel& level : runnable()) {
      SCOPED_TRACE(level.name);
      const auto got = level.kernels->definition(c.definition(), c.arrays());
      const auto h =
          level.kernels->definition_backward(c.definition(), c.arrays(), c.dout.data.data(), want);
      expect_near(want.out, got.out, "out");
      expect_near(want.lse, got.lse, "lse");
      expect_near(want.max_logit, got.max_logit, "max_logit");
      expect_near(g.dq, h.dq, "dq");
      expect_near(g.dk, h.dk, "dk");
      expect_near(g.dv, h.dv, "dv");
      expect_near(g.dsink, h.dsink, "dsink");
    }
  }
}

struct OfTile {
  Tensor out, lse, dq, dk, dv;
  double max_logit = kNegInf;
};

// One sequence of one head, whole, as one tile; delta is any number, the same at every level.
OfTile compute_tile(const CpuKernels& kernels, const RandomCase& c) {
  const auto in = [](const Tensor& x) { return In{x.data.data(), x.dim, x.dim}; };
  const auto out = [](Tensor& x) { return Out{x.data.data(), x.dim, x.dim}; };
  const int rows_q = c.q.rows, rows_k = c.k.rows;
  OfTile r{Tensor(rows_q, 1, c.v.dim, 0.0), Tensor(rows_q, 1, 1, kNegInf),
           Tensor(rows_q, 1, c.q.dim, 0.0), Tensor(rows_k, 1, c.k.dim, 0.0),
           Tensor(rows_k, 1, c.v.dim, 0.0)};
  const Tile tile{{0, 0, 1, 0, rows_q}, {0, 0, 1, 0, rows_k}};
  const TileTask task{c.problem, tile, {0, rows_q}, c.options, 0};
  kernels.tile_forward(task, {in(c.q), in(c.k), in(c.v), out(r.out), out(r.lse), &r.max_logit});
  const Tensor delta(rows_q, 1, 1, 0.25);
  kernels.tile_backward(task, {in(c.q), in(c.k), in(c.v), in(c.dout), in(r.lse), in(delta),
                               out(r.dq), out(r.dk), out(r.dv)});
  return r;
}

TEST(CpuLevels, AgreeOnTiles) {
  Random random(92);
  for (int i = 0; i < 60; ++i) {
    const int len_q = random.integer(1, 150), len_k = random.integer(1, 300);
    const Problem problem{PackedLayout({0, len_q}, {0, len_q}),
                          PackedLayout({0, len_k}, {0, len_k}), testing::random_mask(random), 1, 1};
    const RandomCase c(random, problem);
    const OfTile want = compute_tile(*cpu_levels()[0].kernels, c);
    for (const CpuLevel& level : runnable()) {
      SCOPED_TRACE(level.name);
      const OfTile got = compute_tile(*level.kernels, c);
      expect_near(want.out.data, got.out.data, "out");
      expect_near(want.lse.data, got.lse.data, "lse");
      expect_near({want.max_logit}, {got.max_logit}, "max_logit");
      expect_near(want.dq.data, got.dq.data, "dq");
      expect_near(want.dk.data, got.dk.data, "dk");
      expect_near(want.dv.data, got.dv.data, "dv");
    }
  }
}

// Of a processor that has AVX2 and no AVX-512.
const CpuKernels kNone{};
const CpuLevel kLevels[] = {
    {"baseline", &kNone, true}, {"v3", &kNone, true}, {"v4", &kNone, false}};

TEST(CpuLevels, TheWidestThatRunsIsChosen) {
  EXPECT_STREQ(choose_cpu_level(kLevels).name, "v3");
  EXPECT_STREQ(choose_cpu_level(kLevels, "baseline").name, "baseline");
  EXPECT_STREQ(choose_cpu_level(kLevels, "v3").name, "v3");
}

TEST(CpuLevels, OneThatDoesNotRunHereIsRefused) {
  expect_error<Unsupported>([] { choose_cpu_level(kLevels, "v4"); },
                            {"RINGSIDE_CPU_LEVEL: got \"v4\"", "does not run; expected \"v3\" or",
                             "Unset it to use \"v3\""});
}

TEST(CpuLevels, AnUnknownOneIsRefused) {
  for (const char* name : {"v5", "V4", "v3 ", "native"})
    expect_error<InvalidArgument>(
        [&] { choose_cpu_level(kLevels, name); },
        {"RINGSIDE_CPU_LEVEL: got \"", name, "expected one of \"baseline\", \"v3\", \"v4\"",
         "Unset it to use \"v3\""});
}

}  // namespace
}  // namespace ringside
