// A random case of a plan, and its run by a CudaProgram, compared with the CPU executor.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/attention/kernel.h"
#include "optimized/device/test_shared_memory.h"
#include "optimized/program/program.h"
#include "optimized/program/test_device_array.h"
#include "optimized/program/test_random_capacity.h"
#include "reference/execute/execute.h"
#include "reference/test_support/test_random_case.h"

namespace ringside::testing {

inline std::string why_not() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return devices == 0 ? "no CUDA device" : "";
}

// Lengths around and beyond the blocks of every kernel.
inline PackedLayout long_layout(Random& random, int batch) {
  const std::vector<int> lengths{0, 1, 63, 64, 65, 127, 128, 129, 200};
  std::vector<int32_t> valid{0}, padded{0};
  for (int s = 0; s < batch; ++s) {
    valid.push_back(valid.back() + random.choice(lengths));
    padded.push_back(padded.back() + valid[s + 1] - valid[s] + random.integer(0, 9));
  }
  return {valid, padded};
}

enum class Numbers { all_finite, some_not };

struct DeviceCase {
  Problem problem;
  Plan plan;
  std::optional<Capacity> capacity;  // the program learns its lengths on the device only
  RandomCase c;
  bool deterministic;

  DeviceCase(Random& random, const TypeInfo& type, Numbers numbers)
      : problem(random_problem(random)),
        plan(random_plan(random, problem)),
        capacity(random_capacity(random)),
        c(random, problem),
        deterministic(random.coin()) {
    if (type.type != ElementType::float32) for_tensor_cores(random);
    if (numbers == Numbers::some_not) poison(random);
    for (Tensor* x : {&c.q, &c.k, &c.v, &c.dout})
      for (double& value : x->data) value = rounded(value, type.type);
  }
  // Of one rank, deterministic, without options that not all families know.
  DeviceCase(Random& random, const TypeInfo& type, const Problem& p, int dim)
      : DeviceCase(random, type, p, dim, dim) {}
  DeviceCase(Random& random, const TypeInfo& type, const Problem& p, int dim, int dim_v)
      : problem(p),
        plan(build_plan(p, place(p, "contiguous", 1), {"p2p"})),
        c(random, p, AttentionOptions()),
        deterministic(true) {
    c.options.softmax_scale = 0.1;
    c.q = random_tensor(random, p.layout_q, p.num_heads, dim);
    c.k = random_tensor(random, p.layout_k, p.num_kv_heads, dim);
    c.v = random_tensor(random, p.layout_k, p.num_kv_heads, dim_v);
    c.dout = random_tensor(random, p.layout_q, p.num_heads, dim_v);
    for (Tensor* x : {&c.q, &c.k, &c.v, &c.dout})
      for (double& value : x->data) value = rounded(value, type.type);
  }

 private:
  std::optional<Capacity> random_capacity(Random& random) const {
    return random.integer(0, 2) > 0 ? std::nullopt : room_for(random, plan, problem, 0);
  }

  static Problem random_problem(Random& random) {
    Problem problem = testing::random_problem(random);
    if (random.integer(0, 3) > 0) return problem;
    const int batch = random.integer(1, 3);
    problem.layout_q = long_layout(random, batch);
    problem.layout_k = random.coin() ? problem.layout_q : long_layout(random, batch);
    if (random.coin()) problem.mask.left = random.integer(50, 150);
    return problem;
  }

  // Head dimensions for every compiled one; all options, softcap or dropout alone, or none.
  void for_tensor_cores(Random& random) {
    const std::vector<int> dims{1, 8, 13, 16, 40, 64, 71, 96, 128, 136, 192, 250, 256};
    const int qk = random.choice(dims), v = random.choice(dims);
    c.q = random_tensor(random, problem.layout_q, problem.num_heads, qk);
    c.k = random_tensor(random, problem.layout_k, problem.num_kv_heads, qk);
    c.v = random_tensor(random, problem.layout_k, problem.num_kv_heads, v);
    c.dout = random_tensor(random, problem.layout_q, problem.num_heads, v);
    const int which = random.integer(0, 3);
    if (which == 0) return;
    if (which != 1) c.options.softcap = 0;
    if (which != 2) c.options.dropout = {};
    c.options.alibi_slopes.clear();
  }

  // No weight is to round to 0, which would make a NaN of an infinity: scores stay close, and
  // those that are infinite meet no infinite dout.
  void poison(Random& random) {
    c.options.softmax_scale = 0.3 / std::sqrt(c.q.dim);
    c.options.alibi_slopes.clear();
    const bool infinite_scores = random.coin();
    for (int i = random.integer(1, 4); i > 0; --i) {
      const int which = random.integer(0, 3);
      const double infinity = random.coin() ? INFINITY : -INFINITY;
      const bool is_infinite = (which < 2) == infinite_scores && random.coin();
      poison_one(random, which, is_infinite ? infinity : NAN);
    }
    if (random.one_in(3)) poison_behind(random.integer(0, 100) / 100.0);
  }

  void poison_one(Random& random, int which, double value) {
    const PackedLayout& layout = which == 1 || which == 2 ? problem.layout_k : problem.layout_q;
    Tensor& x = *std::array{&c.q, &c.k, &c.v, &c.dout}[which];
    const int seq = random.integer(0, std::max(0, layout.batch() - 1));
    if (layout.batch() == 0 || layout.len(seq) == 0) return;
    double* row = x.at(layout.row_begin(seq) + random.integer(0, layout.len(seq) - 1),
                       random.integer(0, x.heads - 1));
    const int d = random.integer(0, x.dim - 1), size = random.coin() ? 1 : x.dim - d;
    std::fill(row + d, row + d + size, value);
  }

  // As people test causality.
  void poison_behind(double share) {
    for (int seq = 0; seq < problem.layout_q.batch(); ++seq)
      for (Tensor* x : {&c.q, &c.k, &c.v, &c.dout}) {
        const bool is_key = x == &c.k || x == &c.v;
        const PackedLayout& layout = is_key ? problem.layout_k : problem.layout_q;
        for (int i = static_cast<int>(share * layout.len(seq)); i < layout.len(seq); ++i)
          std::fill_n(x->at(layout.row_begin(seq) + i, 0), x->heads * x->dim, NAN);
      }
  }
};

inline bool has_score_options(const AttentionOptions& o) {
  return o.softcap != 0 || !o.alibi_slopes.empty() || o.dropout.p != 0;
}

inline void expect_same_bits(const char* what, const std::vector<double>& a,
                             const std::vector<double>& b) {
  const auto same = [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  };
  EXPECT_TRUE(std::ranges::equal(a, b, same)) << what;
}

class DeviceRun {  // of one case on the device
 public:
  DeviceRun(const DeviceCase& device_case, const TypeInfo& type, std::string_view family = {})
      : DeviceRun(device_case, type, program_of(device_case, type, family)) {}
  // By a program that may have run others, of its capacity.
  DeviceRun(const DeviceCase& device_case, const TypeInfo& type,
            std::shared_ptr<const CudaProgram> program)
      : c(device_case.c),
        plan_(device_case.plan),
        type_(type),
        deterministic_(device_case.deterministic),
        program_(std::move(program)),
        workspace_(std::max(program_->forward_bytes(), program_->backward_bytes())) {
    if (device_case.capacity) set_lengths();
  }

  const char* family() const { return program_->family(); }
  const std::shared_ptr<const CudaProgram>& program() const { return program_; }
  std::vector<double> output() const { return out.read().data; }

  void enqueue_forward(cudaStream_t stream, bool with_max_logit = false) const {
    auto* const max_logit = static_cast<float*>(with_max_logit ? max_logit_.data() : nullptr);
    program_->forward({q.array(), k.array(), v.array(), out.array(), lse.array(), sink_data(),
                       options(), workspace_.data(), max_logit},
                      stream);
  }
  void forward(bool with_max_logit = false) const {
    spoil_shared_memory(nullptr);
    enqueue_forward(nullptr, with_max_logit);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
  }
  void expect_forward(bool with_max_logit = false) const {
    forward(with_max_logit);
    expect_results(with_max_logit);
  }
  void expect_results(bool with_max_logit = false) const {
    const AttentionOutput want = attention(plan_, c.inputs());
    expect_close("out", type_, want.out.data, out.read().data);
    const double more = error_of_scores(c.q, c.k, c.options, family());
    expect_close("lse", type_, want.lse.data, lse.read().data, more);
    if (with_max_logit) expect_close("max_logit", type_, want.max_logit, max_logit_.read(), more);
  }

  struct Gradients {
    OnDevice dq, dk, dv;
    Guarded dsink;
  };
  Gradients gradients() const {  // NaN
    return {like(c.q), like(c.k), like(c.v), {c.options.sinks.size(), ElementType::float32}};
  }
  void enqueue_backward(const Gradients& to, cudaStream_t stream) const {
    program_->backward(
        {dout.array(), q.array(), k.array(), v.array(), out.array(), lse.array(), to.dq.array(),
         to.dk.array(), to.dv.array(), sink_data(), static_cast<float*>(to.dsink.data()), options(),
         deterministic_, workspace_.data()},
        stream);
  }
  Gradients backward() const {  // from what forward returned
    Gradients to = gradients();
    spoil_shared_memory(nullptr);
    enqueue_backward(to, nullptr);
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    return to;
  }
  std::vector<double> query_gradients() const { return backward().dq.read().data; }
  void expect_backward() const { expect_gradients(backward()); }
  void expect_gradients(const Gradients& got) const {
    const AttentionGradients want =
        attention_backward(plan_, c.inputs(), c.dout, {out.read(), lse.read(), {}});
    expect_close("dq", type_, want.dq.data, got.dq.read().data);
    expect_close("dk", type_, want.dk.data, got.dk.read().data);
    expect_close("dv", type_, want.dv.data, got.dv.read().data);
    expect_close("dsink", type_, want.dsink, got.dsink.read());
  }

  void expect_same_backward() const {
    const Gradients first = backward(), second = backward();
    expect_same_bits("dq", first.dq.read().data, second.dq.read().data);
    expect_same_bits("dk", first.dk.read().data, second.dk.read().data);
    expect_same_bits("dv", first.dv.read().data, second.dv.read().data);
  }

 private:
  static std::shared_ptr<const CudaProgram> program_of(const DeviceCase& x, const TypeInfo& type,
                                                       std::string_view family) {
    const ProgramOptions options{x.c.q.dim,
                                 x.c.v.dim,
                                 type.type,
                                 has_score_options(x.c.options),
                                 static_cast<float>(x.c.options.softmax_scale),
                                 Poison::on,
                                 !x.c.options.sinks.empty(),
                                 std::string(family)};
    return x.capacity ? std::make_shared<CudaProgram>(*x.capacity, options)
                      : std::make_shared<CudaProgram>(x.plan, options);
  }

  static std::vector<int64_t> wide(const std::vector<int32_t>& x) { return {x.begin(), x.end()}; }

  void set_lengths() const {  // half of them int64
    const Problem& p = plan_.problem;
    DeviceTables tables;
    const auto of_q = tables.add(p.layout_q.cu_seqlens());
    const auto of_q_padded = tables.add(wide(p.layout_q.cu_seqlens_padded()));
    const auto of_k = tables.add(wide(p.layout_k.cu_seqlens()));
    const auto of_k_padded = tables.add(p.layout_k.cu_seqlens_padded());
    tables.upload();
    const DeviceLayout q_layout{{tables.at(of_q), of_q.size, false},
                                {tables.at(of_q_padded), of_q_padded.size, true},
                                p.layout_q.num_rows()};
    const DeviceLayout k_layout{{tables.at(of_k), of_k.size, true},
                                {tables.at(of_k_padded), of_k_padded.size, false},
                                p.layout_k.num_rows()};
    program_->set_lengths(q_layout, k_layout, nullptr);
    EXPECT_TRUE(program_->lengths_fitted(nullptr));  // waits, too
  }

  OnDevice like(const Tensor& x) const { return {x.rows, x.heads, x.dim, type_.type}; }
  ScoreOptions options() const {
    return {static_cast<float>(c.options.softcap),
            c.options.alibi_slopes.empty() ? nullptr : static_cast<float*>(slopes_.data()),
            c.options.dropout};
  }
  const float* sink_data() const {
    return c.options.sinks.empty() ? nullptr : static_cast<float*>(sinks_.data());
  }

  const RandomCase& c;
  const Plan& plan_;
  TypeInfo type_;
  bool deterministic_;
  std::shared_ptr<const CudaProgram> program_;
  DeviceMemory workspace_;
  OnDevice q{c.q, type_.type}, k{c.k, type_.type}, v{c.v, type_.type}, dout{c.dout, type_.type};
  OnDevice out{c.q.rows, c.q.heads, c.v.dim, type_.type};
  OnDevice lse{c.q.rows, c.q.heads, 1, ElementType::float32};
  Guarded max_logit_{static_cast<size_t>(c.q.heads), ElementType::float32};
  Guarded sinks_{c.options.sinks, ElementType::float32};
  Guarded slopes_{c.options.alibi_slopes, ElementType::float32};
};

}  // namespace ringside::testing
