// Arrays of the caller in place, whose rows and heads lie anywhere: strides of what there is one
// of, or nothing, do not matter, and arrays that no kernel takes are named before anything is
// launched.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "optimized/device/processors.h"
#include "optimized/program/conformance/test_device_run.h"
#include "reference/test_support/test_errors.h"

namespace ringside {
namespace {

using move::GlobalArray;
using testing::kBFloat16;
using testing::OnDevice;
using testing::refusal;

// Arrays of a pack, and a program for it that works on them in place.
struct InPlace {
  static constexpr int kDim = 128;
  Problem problem;
  CudaProgram program;
  DeviceMemory workspace;
  ScoreOptions options;
  OnDevice q, k, v, dout, out, lse, dq, dk, dv;
  ForwardCall forward;
  BackwardCall backward;

  InPlace(testing::Random& random, int rows, int heads, int kv_heads, float softcap = 0,
          int sm_margin = 0)
      : problem{PackedLayout({0, rows}), PackedLayout({0, rows}), Mask::causal(), heads, kv_heads},
        program(build_plan(problem, place(problem, "contiguous", 1), {"p2p"}),
                {.head_dim_qk = kDim,
                 .head_dim_v = kDim,
                 .type = kBFloat16.type,
                 .score_options = softcap != 0,
                 .softmax_scale = 0.1f,
                 .poison = Poison::on,
                 .sm_margin = sm_margin}),
        workspace(std::max<int64_t>({256, program.forward_bytes(), program.backward_bytes()})),
        q(drawn(random, problem.layout_q, heads)),
        k(drawn(random, problem.layout_k, kv_heads)),
        v(drawn(random, problem.layout_k, kv_heads)),
        dout(drawn(random, problem.layout_q, heads)),
        out(rows, heads, kDim, kBFloat16.type),
        lse(rows, heads, 1, ElementType::float32),
        dq(rows, heads, kDim, kBFloat16.type),
        dk(rows, kv_heads, kDim, kBFloat16.type),
        dv(rows, kv_heads, kDim, kBFloat16.type),
        forward{.q = q.array(),
                .k = k.array(),
                .v = v.array(),
                .out = out.array(),
                .lse = lse.array(),
                .options = {},
                .workspace = workspace.data()},
        backward{.dout = dout.array(),
                 .q = q.array(),
                 .k = k.array(),
                 .v = v.array(),
                 .out = out.array(),
                 .lse = lse.array(),
                 .dq = dq.array(),
                 .dk = dk.array(),
                 .dv = dv.array(),
                 .options = {},
                 .deterministic = true,
                 .workspace = workspace.data()} {
    forward.options.softcap = backward.options.softcap = softcap;
  }

  static OnDevice drawn(testing::Random& random, const PackedLayout& layout, int heads) {
    return {testing::random_tensor(random, layout, heads, kDim), kBFloat16.type};
  }
  std::vector<std::vector<double>> results() {
    program.forward(forward, nullptr), program.backward(backward, nullptr);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    return {out.memory.read(), lse.memory.read(), dq.memory.read(), dk.memory.read(),
            dv.memory.read()};
  }
};

// NumPy's arrays of nothing have strides of 0, which torch keeps.
TEST(CudaProgram, TakesAnyStridesOfWhatThereIsOneOfAndOfNothing) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  testing::Random random(31);
  for (const auto [rows, heads, kv_heads] :
       {std::array{1, 1, 1}, {1, 2, 1}, {200, 2, 1}, {0, 2, 2}}) {
    InPlace given(random, rows, heads, kv_heads);
    ASSERT_TRUE(given.program.in_place());
    const auto want = given.results();
    for (const int64_t odd : {0, -1, 7}) {
      const auto change = [&](GlobalArray& x) {
        if (x.matrix.rows <= 1) x.matrix.row_stride = odd;
        if (x.heads == 1 || x.matrix.rows == 0) x.matrix.head_stride = odd;
      };
      for (GlobalArray* x :
           {&given.forward.q, &given.forward.k, &given.forward.v, &given.forward.out,
            &given.backward.q, &given.backward.k, &given.backward.v, &given.backward.dout,
            &given.backward.dq, &given.backward.dk, &given.backward.dv})
        change(*x);
      SCOPED_TRACE(concat(rows, " rows, ", kv_heads, " key heads, stride ", odd));
      EXPECT_EQ(given.results(), want);
    }
  }
}

// A grid that stays on few multiprocessors, of as many heads and rows as keep them busy.
TEST(CudaProgram, GivesTheSameResultsWhateverItLeavesToOtherKernels) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const auto with = [](int sm_margin) {
    testing::Random random(33);
    return InPlace(random, 600, 4, 2, 0, sm_margin).results();
  };
  const auto want = with(0);
  for (const int sm_margin : {1, 3, processors_of_device() - 1, 1000})
    EXPECT_EQ(with(sm_margin), want) << sm_margin;
  EXPECT_THROW(with(-1), InvalidArgument);
}

TEST(CudaProgram, NamesArraysThatNoKernelTakes) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  testing::Random random(32);
  for (const float softcap : {0.f, 20.f}) {
    InPlace given(random, 40, 2, 2, softcap);
    if (std::string(given.program.family()) != "hopper") GTEST_SKIP() << "no Hopper GPU";
    const auto expect_named = [&](GlobalArray& x, const std::string& name, auto call) {
      const GlobalArray right = x;
      for (const int64_t stride : {int64_t{0}, int64_t{-256}, int64_t{1} << 39, int64_t{4}})
        for (int64_t* which : {&x.matrix.row_stride, &x.matrix.head_stride}) {
          *which = stride;
          EXPECT_TRUE(refusal(call).starts_with(name + " has ")) << name << ", stride " << stride;
          x = right;
        }
      x.matrix.data = static_cast<std::byte*>(x.matrix.data) + 8;
      EXPECT_TRUE(refusal(call).starts_with(name + " has ")) << name << " begins anywhere";
      x = right;
    };
    const auto forward = [&] { given.program.forward(given.forward, nullptr); };
    const auto backward = [&] { given.program.backward(given.backward, nullptr); };
    ForwardCall& f = given.forward;
    BackwardCall& b = given.backward;
    for (const auto& [array, name] :
         {std::pair{&f.q, "q"}, {&f.k, "k"}, {&f.v, "v"}, {&f.out, "out"}})
      expect_named(*array, name, forward);
    for (const auto& [array, name] : {std::pair{&b.q, "q"},
                                      {&b.k, "k"},
                                      {&b.v, "v"},
                                      {&b.dout, "dout"},
                                      {&b.dq, "dq"},
                                      {&b.dk, "dk"},
                                      {&b.dv, "dv"}})
      expect_named(*array, name, backward);
    for (const OnDevice* x : {&given.out, &given.dq, &given.dk, &given.dv})
      for (const double number : x->memory.read()) ASSERT_TRUE(std::isnan(number));
  }
}

}  // namespace
}  // namespace ringside
