// Calls as captured graphs: they give what calls give, and are few launches.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optimized/program/conformance/test_device_run.h"
#include "optimized/program/conformance/test_graph.h"

namespace ringside {
namespace {

using testing::DeviceCase;
using testing::DeviceRun;
using testing::Graph;
using testing::Random;

TEST(CudaProgram, GivesItsResultsWhenAGraphIsReplayed) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(51);
  for (int i = 0; i < 6; ++i) {
    const testing::TypeInfo& type = i % 2 == 0 ? testing::kBFloat16 : testing::kFloat16;
    const DeviceCase device_case(random, type, testing::Numbers::all_finite);
    const DeviceRun run(device_case, type);
    SCOPED_TRACE(concat("case ", i, " by ", run.family()));
    const Graph forward([&](cudaStream_t stream) { run.enqueue_forward(stream, true); });
    const DeviceRun::Gradients gradients = run.gradients();
    const Graph backward([&](cudaStream_t stream) { run.enqueue_backward(gradients, stream); });
    for (int again = 0; again < 2; ++again) {
      forward.launch(), run.expect_results(true);
      backward.launch(), run.expect_gradients(gradients);
    }
  }
}

struct Asked {
  const char* what;
  PackedLayout layout;
  int head_dim;
  bool deterministic;
  int of_forward, of_backward;  // kernels, at most
};

// In place, on a Hopper GPU. Forward: attention, what it dropped, and rows that nobody sees, if
// there may be some. Backward: all that comes before attention, attention, what it dropped, and
// rounding, where sums are not final. The queue's words are filled apart.
TEST(CudaProgram, LaunchesFewKernels) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(52);
  const Asked all[] = {
      {"documents of one item", PackedLayout(std::vector<int32_t>{0, 100, 228}), 128, false, 2, 3},
      {"of three", PackedLayout(std::vector<int32_t>{0, 300, 600}), 128, false, 2, 4},
      {"of many", PackedLayout(std::vector<int32_t>{0, 1100}), 128, false, 2, 4},
      {"of many, in turn", PackedLayout(std::vector<int32_t>{0, 1100}), 128, true, 2, 4},
      {"with padding", PackedLayout({0, 300, 600}, {0, 310, 620}), 128, false, 3, 4},
      {"heads of 64", PackedLayout(std::vector<int32_t>{0, 1100}), 64, false, 2, 4},
      {"heads of 256", PackedLayout(std::vector<int32_t>{0, 300, 600}), 256, false, 2, 4},
  };
  for (const Asked& asked : all) {
    SCOPED_TRACE(asked.what);
    DeviceCase device_case(random, testing::kBFloat16,
                           {asked.layout, asked.layout, Mask::causal(), 2, 2}, asked.head_dim);
    device_case.deterministic = asked.deterministic;
    ProgramOptions options{asked.head_dim, asked.head_dim, ElementType::bfloat16};
    options.softmax_scale = 0.1f, options.sinks = false;
    const auto program = std::make_shared<CudaProgram>(device_case.plan, options);
    if (std::string(program->family()) != "hopper") GTEST_SKIP() << "no Hopper GPU";
    const DeviceRun run(device_case, testing::kBFloat16, program);
    const Graph forward([&](cudaStream_t stream) { run.enqueue_forward(stream); });
    const DeviceRun::Gradients gradients = run.gradients();
    const Graph backward([&](cudaStream_t stream) { run.enqueue_backward(gradients, stream); });
    for (const auto& [graph, kernels] : std::vector<std::pair<const Graph*, int>>{
             {&forward, asked.of_forward}, {&backward, asked.of_backward}}) {
      EXPECT_LE(graph->number_of(cudaGraphNodeTypeKernel), kernels);
      EXPECT_EQ(graph->number_of(cudaGraphNodeTypeMemset), 1);
      EXPECT_EQ(graph->size(), graph->number_of(cudaGraphNodeTypeKernel) + 1);
    }
  }
}

}  // namespace
}  // namespace ringside
