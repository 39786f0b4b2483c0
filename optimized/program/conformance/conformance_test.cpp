// Conformance of the table of kernel families: every family that takes a shape, run through random
// plans with poisoned workspaces, agrees with the CPU executor, forward and backward, in every
// element type. A new family is tested by being in the table. Skips without a device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "optimized/program/conformance/test_device_run.h"
#include "optimized/program/conformance/test_setting.h"
#include "optimized/program/program.h"
#include "optimized/program/stack_parts.h"

namespace ringside {
namespace {

using testing::DeviceCase;
using testing::DeviceRun;
using testing::Numbers;
using testing::Random;
using testing::TypeInfo;
using testing::why_not;

struct Seed {
  TypeInfo type;
  unsigned seed;
  Numbers numbers = Numbers::all_finite;
};
void PrintTo(const Seed& s, std::ostream* out) {
  *out << s.type.name << ", seed " << s.seed;
  if (s.numbers == Numbers::some_not) *out << ", not all finite";
}

class EveryPlanOnTheDevice : public ::testing::TestWithParam<Seed> {};

TEST_P(EveryPlanOnTheDevice, AgreesWithTheCpu) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const auto& [type, seed, numbers] = GetParam();
  Random random(seed);
  const int cases = std::getenv("RINGSIDE_FEW_CASES") != nullptr ? 8 : 36;  // under sanitizers
  for (int i = 0; i < cases; ++i) {
    const DeviceCase device_case(random, type, numbers);
    // On a Hopper GPU the family for all others would have few.
    const bool of_any_gpu = type.type != ElementType::float32 && i % 3 == 2;
    const DeviceRun run(device_case, type, of_any_gpu ? "mma" : "");
    const Plan& plan = device_case.plan;
    SCOPED_TRACE("case " + std::to_string(i) + " by " + run.family() + ": " + plan.partition +
                 " over " + plan.comm + ", cp_size " + std::to_string(plan.cp_size()) +
                 (device_case.capacity ? ", lengths on the device" : ""));
    run.expect_forward(i % 2 == 0);  // some kernels know of no largest logit
    if (!HasFailure()) run.expect_backward();
    if (HasFailure()) return;
  }
}

std::vector<Seed> seeds(const TypeInfo& type) {
  std::vector<Seed> all;
  for (unsigned seed = 0; seed < 8; ++seed) all.push_back({type, seed});
  for (unsigned seed = 8; seed < 12; ++seed) all.push_back({type, seed, Numbers::some_not});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Float32, EveryPlanOnTheDevice,
                         ::testing::ValuesIn(seeds(testing::kFloat32)));
INSTANTIATE_TEST_SUITE_P(Float16, EveryPlanOnTheDevice,
                         ::testing::ValuesIn(seeds(testing::kFloat16)));
INSTANTIATE_TEST_SUITE_P(BFloat16, EveryPlanOnTheDevice,
                         ::testing::ValuesIn(seeds(testing::kBFloat16)));

TEST(CudaProgram, GivesTheSameGradientsAgainWhereDocumentsAreLong) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(12);
  const std::vector<int32_t> begins{0, 400, 401, 541, 1041}, padded{0, 400, 403, 550, 1050};
  const PackedLayout layout(begins, padded), shorter({0, 300, 450, 450, 820});
  const Mask causal = Mask::causal(), last = Mask::causal(Align::bottom_right);
  const Mask window = Mask::sliding_window(150, 40);
  const Problem problems[] = {{layout, layout, causal, 4, 2},
                              {layout, layout, Mask::full(), 2, 2},
                              {layout, shorter, last, 2, 1},
                              {shorter, layout, last, 2, 1},
                              {layout, layout, window, 3, 1}};
  int turn = 0;
  for (const Problem& problem : problems) {
    const TypeInfo type = ++turn % 2 == 0 ? testing::kFloat16 : testing::kBFloat16;
    const DeviceCase device_case(random, type, problem, turn / 2 % 2 == 0 ? 128 : 64);
    const DeviceRun run(device_case, type);
    SCOPED_TRACE("problem " + std::to_string(turn) + " by " + run.family());
    run.expect_forward(), run.expect_backward(), run.expect_same_backward();
  }
}

// Many queries see each key, whose head many share: where the order of sums is free, an item may
// have a part of the heads, and dk and dv are summed up.
TEST(CudaProgram, AgreesWithTheCpuWhereHeadsGoInParts) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(13);
  const PackedLayout queries({0, 90, 2750}, {0, 96, 2784}), keys({0, 70, 330});
  const Problem problem{queries, keys, Mask::full(), 8, 1};
  for (const auto& [type, dim, dim_v] :
       {std::tuple{testing::kFloat16, 128, 128}, {testing::kBFloat16, 136, 72}}) {
    DeviceCase device_case(random, type, problem, dim, dim_v);
    device_case.deterministic = false;
    const DeviceRun run(device_case, type);
    SCOPED_TRACE(std::to_string(dim) + " by " + run.family());
    run.expect_forward(), run.expect_backward();
  }
}

TEST(CudaProgram, AgreesWithTheCpuWhereHeadsOfARingShareKeyHeads) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(16);
  const PackedLayout layout({0, 200, 530, 531, 900}, {0, 204, 540, 548, 930});
  for (const auto& [transport, dim, kv_heads] :
       {std::tuple{"p2p", 128, 2}, {"p2p", 64, 1}, {"all_gather", 128, 2}, {"a2a", 128, 4}}) {
    const Mask mask = kv_heads == 1 ? Mask::sliding_window(150, 0) : Mask::causal();
    const Problem problem{layout, layout, mask, 4 * kv_heads, kv_heads};
    for (const bool deterministic : {false, true}) {
      DeviceCase device_case(random, testing::kBFloat16, problem, dim);
      device_case.plan = build_plan(problem, place(problem, "zigzag", 4), {transport});
      device_case.deterministic = deterministic;
      const DeviceRun run(device_case, testing::kBFloat16);
      SCOPED_TRACE(std::string(transport) + " by " + run.family());
      run.expect_forward(), run.expect_backward();
      if (deterministic) run.expect_same_backward();
    }
  }
}

// Many queries of few keys, and documents of which a causal mask hides half: where it does, each
// query head of a key head has items of its own, in a ring in the step of a rank's own keys. Of
// heads that are exchanged, a rank has two of the four.
TEST(CudaProgram, TakesQueryHeadsApartWhereItemsMeetRowsInPart) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(18);
  for (const auto& [transport, many, taken_apart] :
       {std::tuple{"p2p", 2'200, 1}, {"a2a", 1'100, 2}}) {
    const int some = many / 3;
    const PackedLayout q({0, many, many + some, many + 2 * some, many + 3 * some});
    const PackedLayout k({0, 64, 64 + some, 64 + 2 * some, 64 + 3 * some});
    const Problem problem{q, k, Mask::causal(), 4, 1};
    const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {transport});
    const StackParts parts(plan, {64, 64, ElementType::bfloat16});
    int apart = 0, launches = 0;
    for (const OperationTables& operation : parts.backward.operations[0])
      if (operation.backward_keys.items.size > 0) {
        ++launches, apart += operation.head_parts > 1 ? 1 : 0;
        EXPECT_TRUE(operation.head_parts == 1 || !operation.starts);
      }
    EXPECT_EQ(launches, 2) << transport;
    EXPECT_EQ(apart, parts.family.backward_head_parts != nullptr ? taken_apart : 0) << transport;
    for (const bool deterministic : {false, true}) {
      DeviceCase device_case(random, testing::kBFloat16, problem, 64);
      device_case.plan = plan, device_case.deterministic = deterministic;
      const DeviceRun run(device_case, testing::kBFloat16);
      SCOPED_TRACE(std::string(transport) + " by " + run.family());
      run.expect_forward(), run.expect_backward();
      if (deterministic) run.expect_same_backward();
    }
  }
}

TEST(CudaProgram, AgreesWithTheCpuWhateverTheNumberOfHeads) {  // blocks of delta have up to sixteen
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(17);
  const PackedLayout layout({0, 3, 43, 44, 97}, {0, 5, 45, 48, 101});
  for (const int heads : {1, 3, 16, 17, 34, 64})
    for (const int ranks : {1, 2}) {
      const Problem problem{layout, layout, Mask::causal(), heads,
                            heads % 2 == 0 ? heads / 2 : heads};
      const testing::TypeInfo& type = heads % 2 == 0 ? testing::kBFloat16 : testing::kFloat32;
      DeviceCase device_case(random, type, problem, heads == 16 ? 128 : 64);
      device_case.plan = build_plan(problem, place(problem, "zigzag", ranks), {"p2p"});
      const DeviceRun run(device_case, type);
      SCOPED_TRACE(std::to_string(heads) + " heads over " + std::to_string(ranks));
      run.expect_forward(), run.expect_backward();
    }
}

TEST(CudaProgram, PadsHeadDimensionsForTheTensorCores) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const Problem problem{{{0, 3}, {0, 3}}, {{0, 3}, {0, 3}}, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16})
    EXPECT_STRNE(CudaProgram(plan, {5, 191, type.type}).family(), "float32") << type.name;
}

TEST(CudaProgram, RunsTheFamilyAskedForOrThoseBehindIt) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const Problem problem{{{0, 3}, {0, 3}}, {{0, 3}, {0, 3}}, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 1), {"p2p"});
  ProgramOptions options{128, 128, ElementType::bfloat16};
  for (const char* name : {"mma", "float32"}) {
    options.family = name;
    EXPECT_STREQ(CudaProgram(plan, options).family(), name);
  }
  options.score_options = true, options.family = "mma";
  EXPECT_STREQ(CudaProgram(plan, options).family(), "float32");
  options.family = "volta";
  try {
    const CudaProgram refused(plan, options);
    ADD_FAILURE() << "by " << refused.family();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "family is \"volta\"; expected one of: hopper, mma, float32");
  }
}

#ifdef RINGSIDE_INTERPRETED
// The kernel that fills tables has a block for each.
TEST(CudaProgram, AgreesWithTheCpuOnADeviceOfFewProcessors) {
  Random random(21);
  const PackedLayout layout({0, 9, 140, 140, 171}, {0, 12, 150, 150, 184});
  const Problem problem{layout, layout, Mask::causal(), 2, 1};
  for (const int number : {1, 2, 3}) {
    DeviceCase device_case(random, testing::kBFloat16, problem, 64);
    device_case.plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
    device_case.capacity = testing::room_for(random, device_case.plan, problem, 0);
    const testing::Setting few("PROCESSORS", number);
    const DeviceRun run(device_case, testing::kBFloat16);
    SCOPED_TRACE("processors: " + std::to_string(number));
    run.expect_forward(), run.expect_backward();
  }
}

TEST(CudaProgram, RunsTheMmaFamilyWhereThereIsNoHopperGpu) {
  Random random(24);
  const PackedLayout layout({0, 9, 150}, {0, 12, 153});
  const DeviceCase device_case(random, testing::kBFloat16, {layout, layout, Mask::causal(), 2, 1},
                               128);
  for (const int capability : {80, 89, 100, 120}) {
    const testing::Setting other("CAPABILITY", capability);
    const DeviceRun run(device_case, testing::kBFloat16);
    SCOPED_TRACE(concat("capability ", capability));
    EXPECT_STREQ(run.family(), "mma");
    if (capability == 80) run.expect_forward(), run.expect_backward();
  }
  EXPECT_STREQ(DeviceRun(device_case, testing::kBFloat16).family(), "hopper");
}

// Which is asked once, so by a process of its own.
TEST(CudaProgramDeathTest, RunsTheMmaFamilyWhereTheDriverMakesNoMaps) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const testing::Setting old("TENSOR_MAPS", 0);
  const auto run_one = [] {
    Random random(25);
    const PackedLayout layout({0, 9, 150}, {0, 12, 153});
    const DeviceCase device_case(random, testing::kBFloat16, {layout, layout, Mask::causal(), 2, 1},
                                 128);
    const DeviceRun run(device_case, testing::kBFloat16);
    run.expect_forward(), run.expect_backward();
    std::fprintf(stderr, "by %s", run.family());
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run_one(), ::testing::ExitedWithCode(0), "by mma");
}
#endif

TEST(CudaProgram, RefusesAWorkspaceThatBeginsAnywhere) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const Problem problem{PackedLayout(std::vector<int32_t>{0}),
                        PackedLayout(std::vector<int32_t>{0}), Mask::causal()};
  const CudaProgram program(build_plan(problem, place(problem, "zigzag", 1), {"p2p"}),
                            {8, 8, ElementType::bfloat16});
  ForwardCall call;
  call.workspace = reinterpret_cast<void*>(264);
  try {
    program.forward(call, nullptr);
    ADD_FAILURE() << "it ran";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "workspace at 264; expected a multiple of 256 bytes. Begin it where "
                 "cudaMalloc does");
  }
}

TEST(CudaProgram, RefusesToRunOnAnotherDevice) {
  const testing::Setting two("DEVICES", 2);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) GTEST_SKIP() << "one device";
  Capacity room;
  room.comm.name = "p2p", room.max_rows_q = room.max_rows_k = 4;
  const CudaProgram program(room, {8, 8, ElementType::bfloat16});
  EXPECT_EQ(program.device(), 0);
  RINGSIDE_CUDA(cudaSetDevice(1));
  const auto expect_refused = [](auto call) {  // for that, not for what else these calls lack
    try {
      call();
      ADD_FAILURE() << "it ran";
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("device 1 is current")) << error.what();
    }
  };
  expect_refused([&] { program.forward(ForwardCall(), nullptr); });
  expect_refused([&] { program.backward(BackwardCall(), nullptr); });
  expect_refused([&] { program.set_lengths({}, {}, nullptr); });
  expect_refused([&] { program.lengths_fitted(nullptr); });
  RINGSIDE_CUDA(cudaSetDevice(0));
}

}  // namespace
}  // namespace ringside
