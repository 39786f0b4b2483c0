// Conformance of the table of kernel families: every family that takes a shape, run through random
// plans with poisoned workspaces, agrees with the CPU executor, forward and backward. A new family
// is tested by being in the table. Skips without a device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "optimized/attention_kernel.h"
#include "optimized/device_memory.h"
#include "optimized/execute.h"
#include "reference/execute.h"
#include "reference/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

constexpr int kCanary = 256;  // elements on both sides of every array
constexpr float kCanaryValue = 12345;

std::string why_not() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return devices == 0 ? "no CUDA device" : "";
}

// A float array on the device between canaries.
class Guarded {
 public:
  explicit Guarded(const std::vector<float>& x) : size_(x.size()), memory_(bytes()) {
    std::vector<float> all(size_ + 2 * kCanary, kCanaryValue);
    std::copy(x.begin(), x.end(), all.begin() + kCanary);
    RINGSIDE_CUDA(cudaMemcpy(memory_.data(), all.data(), bytes(), cudaMemcpyHostToDevice));
  }
  explicit Guarded(size_t size) : Guarded(std::vector<float>(size, NAN)) {}

  float* data() const { return reinterpret_cast<float*>(memory_.data()) + kCanary; }

  std::vector<float> read() const {
    std::vector<float> all(size_ + 2 * kCanary);
    RINGSIDE_CUDA(cudaMemcpy(all.data(), memory_.data(), bytes(), cudaMemcpyDeviceToHost));
    for (int i = 0; i < kCanary; ++i) {
      EXPECT_EQ(all[i], kCanaryValue) << "written before the array";
      EXPECT_EQ(all[kCanary + size_ + i], kCanaryValue) << "written behind the array";
    }
    return {all.begin() + kCanary, all.end() - kCanary};
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>((size_ + 2 * kCanary) * sizeof(float)); }
  size_t size_;
  DeviceMemory memory_;
};

struct OnDevice {  // a [rows, heads, dim] array
  int heads, dim;
  Guarded memory;

  explicit OnDevice(const Tensor& x)
      : heads(x.heads), dim(x.dim), memory(std::vector<float>(x.data.begin(), x.data.end())) {}
  OnDevice(int rows, int heads_, int dim_)
      : heads(heads_), dim(dim_), memory(static_cast<size_t>(rows) * heads_ * dim_) {}

  move::GlobalArray array() const {
    return {{memory.data(), int64_t{heads} * dim, dim}, ElementType::float32, heads, dim};
  }
};

void round_to_float(Tensor& x) {
  for (double& value : x.data) value = static_cast<float>(value);
}

double largest(const std::vector<double>& x) {
  double top = 1;
  for (const double value : x)
    if (std::isfinite(value)) top = std::max(top, std::abs(value));
  return top;
}

// float32 rounds at 6e-8; sums of up to ~100 terms and exp of scores of size ~10 stay below 2e-6 of
// the largest value; any fault of indexing is of order 1.
void expect_close(const std::vector<double>& want, const std::vector<float>& got,
                  const char* what) {
  ASSERT_EQ(want.size(), got.size()) << what;
  const double tolerance = 2e-6 * largest(want) * (std::string(what) == "lse" ? 2 : 8);
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got[i]) continue;  // -inf too
    ASSERT_LE(std::abs(want[i] - got[i]), tolerance) << what << "[" << i << "]";
  }
}

struct DeviceRun {  // of one case on the device
  const Plan& plan;
  const testing::Case& c;
  CudaProgram program;
  DeviceMemory workspace;
  OnDevice q{c.q}, k{c.k}, v{c.v}, dout{c.dout};
  OnDevice out{c.q.rows, c.q.heads, c.v.dim}, lse{c.q.rows, c.q.heads, 1};
  Guarded sinks{std::vector<float>(c.options.sinks.begin(), c.options.sinks.end())};
  Guarded slopes{std::vector<float>(c.options.alibi_slopes.begin(), c.options.alibi_slopes.end())};

  DeviceRun(const Plan& p, const testing::Case& x)
      : plan(p),
        c(x),
        program(p, {x.q.dim, x.v.dim, ElementType::float32, true,
                    static_cast<float>(x.options.softmax_scale), Poison::on}),
        workspace(std::max(program.forward_bytes(), program.backward_bytes())) {}

  ScoreOptions options() const {
    return {static_cast<float>(c.options.softcap),
            c.options.alibi_slopes.empty() ? nullptr : slopes.data(), c.options.dropout};
  }
  const float* sink_data() const { return c.options.sinks.empty() ? nullptr : sinks.data(); }

  void expect_forward(const AttentionOutput& want) {
    program.forward({q.array(), k.array(), v.array(), out.array(), lse.array(), sink_data(),
                     options(), workspace.data()},
                    nullptr);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    expect_close(want.out.data, out.memory.read(), "out");
    expect_close(want.lse.data, lse.memory.read(), "lse");
  }

  void expect_backward(const AttentionGradients& want) {
    const OnDevice dq{c.q.rows, c.q.heads, c.q.dim}, dk{c.k.rows, c.k.heads, c.k.dim},
        dv{c.v.rows, c.v.heads, c.v.dim};
    const Guarded dsink(c.options.sinks.size());
    program.backward(
        {dout.array(), q.array(), k.array(), v.array(), out.array(), lse.array(), dq.array(),
         dk.array(), dv.array(), sink_data(), dsink.data(), options(), true, workspace.data()},
        nullptr);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    expect_close(want.dq.data, dq.memory.read(), "dq");
    expect_close(want.dk.data, dk.memory.read(), "dk");
    expect_close(want.dv.data, dv.memory.read(), "dv");
    expect_close(want.dsink, dsink.read(), "dsink");
  }
};

class EveryPlanOnTheDevice : public ::testing::TestWithParam<unsigned> {};

TEST_P(EveryPlanOnTheDevice, AgreesWithTheCpu) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(GetParam());
  for (int i = 0; i < 25; ++i) {
    const Problem problem = testing::random_problem(random);
    const Plan plan = testing::random_plan(random, problem);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + plan.partition + " over " + plan.comm +
                 ", cp_size " + std::to_string(plan.cp_size()));
    testing::Case c(random, problem);
    for (Tensor* x : {&c.q, &c.k, &c.v, &c.dout}) round_to_float(*x);
    DeviceRun run(plan, c);
    const AttentionOutput saved = attention(plan, c.inputs());
    run.expect_forward(saved);
    run.expect_backward(attention_backward(plan, c.inputs(), c.dout, saved));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EveryPlanOnTheDevice, ::testing::Range(0u, 8u));

TEST(KernelFamilies, HaveNamesAndSayWhatTheyTake) {
  ASSERT_FALSE(kernel_families().empty());
  for (const KernelFamily& family : kernel_families()) {
    EXPECT_NE(family.name, nullptr);
    AttentionShape shape{.head_dim_qk = 257, .head_dim_v = 257};
    EXPECT_FALSE(family.supports(shape)) << family.name;
  }
}

}  // namespace
}  // namespace ringside
