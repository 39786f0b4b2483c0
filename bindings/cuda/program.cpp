// backend="cuda": device pointers in, launches out. Which library owns the memory is Python's
// affair (ringside/_arrays/programs.py); what is checked here is shapes and types.
//
// A module of its own, ringside._cuda_core, which only builds with CUDA have: importing ringside
// loads nothing of CUDA's. Plans and exceptions are those of ringside._core.
#include "optimized/program/program.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/core/arguments.h"
#include "bindings/core/options.h"
#include "bindings/cuda/device_array.h"
#include "bindings/cuda/global_arrays.h"
#include "reference/support/errors.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

class Program {
 public:
  Program(std::shared_ptr<const Plan> plan, const DeviceArray& q, const DeviceArray& v, int device,
          const CallOptions& options, bool poison)
      : Program(*plan,
                {plan->problem.layout_q.num_rows(), plan->problem.layout_k.num_rows(),
                 plan->problem.num_heads, plan->problem.num_kv_heads},
                q, v, device, options, poison) {}
  Program(const Capacity& capacity, const DeviceArray& q, const DeviceArray& v, int device,
          const CallOptions& options, bool poison)
      : Program(
            capacity,
            {capacity.max_rows_q, capacity.max_rows_k, capacity.num_heads, capacity.num_kv_heads},
            q, v, device, options, poison) {}

  ~Program() {
    const py::gil_scoped_release release;  // memory is freed when the device has come to an end
    program_.reset();
  }

  void set_lengths(const DeviceLayout& q, const DeviceLayout& k, uintptr_t stream) const {
    const py::gil_scoped_release release;
    const OnDevice on(device_);
    program_->set_lengths(q, k, reinterpret_cast<cudaStream_t>(stream));
  }
  bool lengths_fitted(uintptr_t stream) const {
    const py::gil_scoped_release release;
    const OnDevice on(device_);
    return program_->lengths_fitted(reinterpret_cast<cudaStream_t>(stream));
  }

 private:
  struct Sizes {
    int64_t rows_q, rows_k;
    int heads, kv_heads;
  };
  template <typename Source>
  Program(const Source& source, const Sizes& sizes, const DeviceArray& q, const DeviceArray& v,
          int device, const CallOptions& options, bool poison)
      : sizes_(sizes), device_(device), dim_qk_(dim_of(q, "q")), dim_v_(dim_of(v, "v")) {
    const ProgramOptions made_for = options.of_program(q, v, sizes.heads, poison);
    const py::gil_scoped_release release;
    const OnDevice on(device);
    program_ = std::make_unique<CudaProgram>(source, made_for);
  }

 public:
  std::string family() const { return program_->family(); }
  bool in_place() const { return program_->in_place(); }
  int64_t forward_bytes() const { return program_->forward_bytes(); }
  int64_t backward_bytes() const { return program_->backward_bytes(); }

  void forward(const std::vector<DeviceArray>& arrays, const CallOptions& options,
               uintptr_t workspace, uintptr_t stream) const {
    require(arrays.size() == 5 || arrays.size() == 6, "expected q, k, v, out, lse, max_logit");
    const auto x = operands(arrays[0], arrays[1], arrays[2]);
    const ForwardCall call{x.q,
                           x.k,
                           x.v,
                           global_array(arrays[3], "out", {rows_q(), heads(), dim_v_}),
                           lse_array(arrays[4], heads(), rows_q()),
                           floats(options.sink, "sink", heads()),
                           score_options(options),
                           reinterpret_cast<void*>(workspace),
                           max_logit_of(arrays)};
    const py::gil_scoped_release release;
    const OnDevice on(device_);
    program_->forward(call, reinterpret_cast<cudaStream_t>(stream));
  }

  void backward(const std::vector<DeviceArray>& arrays, const std::optional<DeviceArray>& dsink,
                const CallOptions& options, bool deterministic, uintptr_t workspace,
                uintptr_t stream) const {
    require(arrays.size() == 9, "expected dout, q, k, v, out, lse, dq, dk, dv");
    const auto x = operands(arrays[1], arrays[2], arrays[3]);
    const Extent out{rows_q(), heads(), dim_v_};
    const BackwardCall call{same_type(global_array(arrays[0], "dout", out), x.q, "dout"),
                            x.q,
                            x.k,
                            x.v,
                            global_array(arrays[4], "out", out),
                            lse_array(arrays[5], heads(), rows_q()),
                            global_array(arrays[6], "dq", {rows_q(), heads(), dim_qk_}),
                            global_array(arrays[7], "dk", {rows_k(), kv_heads(), dim_qk_}),
                            global_array(arrays[8], "dv", {rows_k(), kv_heads(), dim_v_}),
                            floats(options.sink, "sink", heads()),
                            const_cast<float*>(floats(dsink, "dsink", heads())),
                            score_options(options),
                            deterministic,
                            reinterpret_cast<void*>(workspace)};
    const py::gil_scoped_release release;
    const OnDevice on(device_);
    program_->backward(call, reinterpret_cast<cudaStream_t>(stream));
  }

 private:
  struct Operands {
    move::GlobalArray q, k, v;
  };

  Operands operands(const DeviceArray& q, const DeviceArray& k, const DeviceArray& v) const {
    const auto x = global_array(q, "q", {rows_q(), heads(), dim_qk_});
    return {x, same_type(global_array(k, "k", {rows_k(), kv_heads(), dim_qk_}), x, "k"),
            same_type(global_array(v, "v", {rows_k(), kv_heads(), dim_v_}), x, "v")};
  }

  float* max_logit_of(const std::vector<DeviceArray>& arrays) const {  // asked for, or not
    if (arrays.size() < 6) return nullptr;
    return const_cast<float*>(floats(arrays[5], "max_logit", heads()));
  }

  ScoreOptions score_options(const CallOptions& options) const {
    return options.score_options(sizes_.heads, dim_qk_);
  }
  int64_t rows_q() const { return sizes_.rows_q; }
  int64_t rows_k() const { return sizes_.rows_k; }
  int64_t heads() const { return sizes_.heads; }
  int64_t kv_heads() const { return sizes_.kv_heads; }

  Sizes sizes_;
  int device_, dim_qk_, dim_v_;
  std::unique_ptr<CudaProgram> program_;
};

void bind_arguments(py::module_& m) {
  py::class_<CallOptions>(m, "CallOptions", "Keywords, and those of them that are arrays.")
      .def(py::init([](const OptionsArgument& keywords, std::optional<DeviceArray> sink,
                       std::optional<DeviceArray> alibi_slopes) {
             return CallOptions{keywords, std::move(sink), std::move(alibi_slopes)};
           }),
           "keywords"_a, "sink"_a, "alibi_slopes"_a);
  py::class_<Capacity>(m, "Capacity", "What a plan has room for; see optimized/tables/capacity.h.")
      .def(py::init(strictly<"partition", "comm", "a2a_size", "mask", "cp_size", "num_heads",
                             "num_kv_heads", "max_sequences", "num_rows_q", "num_rows_k",
                             "pad_to_multiple_of", "max_seqlen">(
               [](const std::string& partition, const std::string& comm, int a2a_size,
                  const Mask& mask, int cp_size, int num_heads, int num_kv_heads, int max_sequences,
                  int max_rows_q, int max_rows_k, int pad_to_multiple_of, int max_seqlen) {
                 Capacity capacity{partition,  {comm, a2a_size},   mask,          cp_size,
                                   num_heads,  num_kv_heads,       max_sequences, max_rows_q,
                                   max_rows_k, pad_to_multiple_of, max_seqlen};
                 static_cast<void>(stand_in_plan(capacity));  // checks everything
                 return capacity;
               })),
           py::kw_only(), "partition"_a, "comm"_a, "a2a_size"_a, "mask"_a, "cp_size"_a,
           "num_heads"_a, "num_kv_heads"_a, "max_sequences"_a, "max_rows_q"_a, "max_rows_k"_a,
           "pad_to_multiple_of"_a, "max_seqlen"_a)
      .def_property_readonly(
          "rank_rows_q", [](const Capacity& c) { return rank_rows(c, c.max_rows_q); },
          "Rows of q of any rank, whatever the lengths.")
      .def_property_readonly(
          "rank_rows_k", [](const Capacity& c) { return rank_rows(c, c.max_rows_k); },
          "Likewise, of k and v.");
}

void bind_program(py::module_& m) {
  py::class_<Program>(m, "Program", "A plan uploaded to a device; see optimized/program/program.h.")
      .def(py::init<std::shared_ptr<const Plan>, const DeviceArray&, const DeviceArray&, int,
                    const CallOptions&, bool>(),
           "plan"_a, "q"_a, "v"_a, "device"_a, "options"_a, "poison"_a)
      .def(py::init<const Capacity&, const DeviceArray&, const DeviceArray&, int,
                    const CallOptions&, bool>(),
           "capacity"_a, "q"_a, "v"_a, "device"_a, "options"_a, "poison"_a)
      .def("set_lengths", &Program::set_lengths, "q"_a, "k"_a, "stream"_a,
           "Of a program of capacity: rewrites its tables from a thd.Layout of q and one of k; one "
           "launch.")
      .def("lengths_fitted", &Program::lengths_fitted, "stream"_a,
           "Whether all lengths since the last question fitted; synchronizes.")
      .def_property_readonly("family", &Program::family, "The kernels it runs.")
      .def_property_readonly("in_place", &Program::in_place,
                             "Whether kernels work on the caller's arrays.")
      .def_property_readonly("forward_bytes", &Program::forward_bytes, "Workspace of forward().")
      .def_property_readonly("backward_bytes", &Program::backward_bytes, "Workspace of backward().")
      .def("forward", &Program::forward, "arrays"_a, "options"_a, "workspace"_a, "stream"_a,
           "Launches on a stream; arrays are q, k, v, out, lse and, where asked for, max_logit.")
      .def("backward", &Program::backward, "arrays"_a, "dsink"_a, "options"_a, "deterministic"_a,
           "workspace"_a, "stream"_a,
           "Launches on a stream; arrays are dout, q, k, v, out, lse, dq, dk, dv.");
}

void bind_devices(py::module_& m) {
  m.def(
      "problem",
      [] {
        int devices = 0;
        const cudaError_t error = cudaGetDeviceCount(&devices);
        return error != cudaSuccess ? std::string(cudaGetErrorString(error))
               : devices == 0       ? std::string("no device")
                                    : std::string();
      },
      "Why backend=\"cuda\" cannot run here; empty if it can.");
  m.def(
      "device_of",
      [](uintptr_t pointer) {
        cudaPointerAttributes found{};
        RINGSIDE_CUDA(cudaPointerGetAttributes(&found, reinterpret_cast<void*>(pointer)));
        return found.type == cudaMemoryTypeUnregistered ? -1 : found.device;
      },
      "pointer"_a, "The number of the device on which memory lies; -1 if on none.");
}

}  // namespace
}  // namespace ringside::bindings

PYBIND11_MODULE(_cuda_core, m) {
  using namespace ringside;
  using namespace ringside::bindings;
  m.doc() = "The C++ half of backend=\"cuda\". Use ringside.Plan instead.";
  py::register_exception<CudaError>(m, "CudaError", PyExc_RuntimeError).doc() =
      "A call of CUDA's that failed, with its file and line.";
  bind_arguments(m);
  bind_program(m);
  bind_devices(m);
  bind_cuda_thd(m);
  bind_ranks(m);
  name_wrong_arguments(m);
  name_wrong_arguments(m.attr("thd"));
  py::list families;
  for (const KernelFamily& family : kernel_families()) families.append(family.name);
  m.attr("KERNEL_FAMILIES") = py::tuple(families);
  m.attr("QUICK_KERNELS") = bool(RINGSIDE_QUICK_KERNELS);
}
