// The ranks of a plan that this process hosts, on its device, linked with those of other processes.
#include <cuda_runtime_api.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cuda/global_arrays.h"
#include "optimized/links/links.h"
#include "optimized/links/mailbox.h"
#include "optimized/ranks/program.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

class DeviceLinks {
 public:
  DeviceLinks(int device, int mine, int processes, const std::string& words_path)
      : device_(device) {
    const OnDevice on(device);
    links_ = std::make_unique<Links>(mine, processes, words_path);
  }
  ~DeviceLinks() {
    const py::gil_scoped_release release;
    links_.reset();
  }

  template <typename Result, typename... Parameters, typename... Arguments>
  Result call(Result (Links::*function)(Parameters...), Arguments&&... arguments) {
    const py::gil_scoped_release release;
    const OnDevice on(device_);
    return (links().*function)(std::forward<Arguments>(arguments)...);
  }

  bool reserve(int64_t bytes) { return call(&Links::reserve, bytes); }
  void forget_workspace() { call(&Links::forget_workspace); }
  void unmap_workspaces() { call(&Links::unmap_workspaces); }
  void free_workspace() { call(&Links::free_workspace); }
  py::bytes workspace_handle() const {
    std::string handle;
    {
      const py::gil_scoped_release release;
      const OnDevice on(device_);
      handle = links().workspace_handle();
    }
    return handle;
  }
  void meet_peers(const std::vector<std::string>& paths) { call(&Links::meet_peers, paths); }
  void map_workspace(int process, const std::string& handle) {
    call(&Links::map_workspace, process, handle);
  }
  void meet_nccl(const std::string& library, const std::string& id) {
    call(&Links::meet_nccl, library, id);
  }
  void abort() { call(&Links::abort); }
  void guard(double patience_s) { call(&Links::guard, patience_s); }
  bool is_idle() const {
    const OnDevice on(device_);
    return links().is_idle();
  }
  // (started, completed, step or -1, whether messages of another call came, whether it was aborted)
  py::tuple progress() const {
    const Progress now = links().progress();
    const SharedWords& words = links().words();
    return py::make_tuple(now.started, now.completed, static_cast<int>(now.step) - 1,
                          words[mailbox::kMismatch].load() != 0,
                          words[mailbox::kAborted].load() != 0);
  }

  Links& links() const { return *links_; }
  int device() const { return device_; }

 private:
  int device_;
  std::unique_ptr<Links> links_;
};

// Rows of the caller's arrays of each hosted rank, and heads.
struct SizesOfRanks {
  std::vector<int64_t> rows_q, rows_k;
  int heads = 0, kv_heads = 0;

  SizesOfRanks(const Plan& plan, const Hosting& hosting)
      : heads(plan.problem.num_heads), kv_heads(plan.problem.num_kv_heads) {
    for (const int rank : hosting.hosted()) {
      rows_q.push_back(plan.rows(plan.home_q[rank]));
      rows_k.push_back(plan.rows(plan.home_kv[rank]));
    }
  }
  SizesOfRanks(const Capacity& capacity, const Hosting& hosting)
      : rows_q(hosting.hosted().size(), rank_rows(capacity, capacity.max_rows_q)),
        rows_k(hosting.hosted().size(), rank_rows(capacity, capacity.max_rows_k)),
        heads(capacity.num_heads),
        kv_heads(capacity.num_kv_heads) {}
};

class RanksOfProcess {
 public:
  // Of a Plan, or of a Capacity.
  template <typename Source>
  RanksOfProcess(const Source& source, const std::vector<std::vector<int>>& processes, int mine,
                 const DeviceArray& q, const DeviceArray& v, int device, const CallOptions& options,
                 bool keep_kv, bool poison)
      : hosting_{processes, mine},
        sizes_(source, hosting_),
        made_on_(device),
        made_for_(options.of_program(q, v, sizes_.heads, poison)) {
    const py::gil_scoped_release release;
    const OnDevice on(device);
    program_ = std::make_unique<RankProgram>(source, hosting_, made_for_,
                                             keep_kv ? KeepKv::yes : KeepKv::no);
    kept_bytes_ = program_->kept_bytes();
  }
  ~RanksOfProcess() {
    const py::gil_scoped_release release;  // memory is freed when the device has come to an end
    program_.reset();
  }

  int device() const { return made_on_; }
  void set_lengths(const DeviceLayout& q, const DeviceLayout& k, uintptr_t stream) const {
    const py::gil_scoped_release release;
    const OnDevice on(made_on_);
    program_->set_lengths(q, k, reinterpret_cast<cudaStream_t>(stream));
  }
  bool lengths_fitted(uintptr_t stream) const {
    const py::gil_scoped_release release;
    const OnDevice on(made_on_);
    return program_->lengths_fitted(reinterpret_cast<cudaStream_t>(stream));
  }

  std::string family() const { return program_->family(); }
  int64_t workspace_bytes() const { return program_->workspace_bytes(); }
  const std::vector<int64_t>& kept_bytes() const { return kept_bytes_; }
  int64_t bytes_sent() const { return program_->bytes_sent(); }
  void attach(const DeviceLinks& links, uint32_t kind) {
    const py::gil_scoped_release release;
    const OnDevice on(links.device());
    program_->attach(links.links(), kind);
  }
  void make_room_to_rehearse() {
    const py::gil_scoped_release release;
    const OnDevice on(made_on_);
    program_->make_room_to_rehearse();
  }
  double rehearse(DeviceLinks& links, int times) {
    const py::gil_scoped_release release;
    const OnDevice on(links.device());
    return program_->rehearse(links.links(), times);
  }

  // [member] q, k, v, out, lse, kept
  void forward(DeviceLinks& links, const std::vector<std::vector<DeviceArray>>& arrays,
               const CallOptions& options, const std::optional<DeviceArray>& max_logit,
               uintptr_t stream) const {
    std::vector<RankForwardCall> calls;
    for (size_t member = 0; member < hosting_.hosted().size(); ++member) {
      const auto& x = arrays.at(member);
      require(x.size() == 6, "expected q, k, v, out, lse, kept");
      const auto q = array(x[0], "q", queries(member, made_for_.head_dim_qk));
      calls.push_back({q, same_type(array(x[1], "k", keys(member, made_for_.head_dim_qk)), q, "k"),
                       same_type(array(x[2], "v", keys(member, made_for_.head_dim_v)), q, "v"),
                       array(x[3], "out", queries(member, made_for_.head_dim_v)),
                       lse_array(x[4], heads(), queries(member, 1).rows), kept(member, x[5])});
    }
    RankCallOptions of_call = call_options(options);
    of_call.max_logit = const_cast<float*>(floats(max_logit, "max_logit", heads()));
    const py::gil_scoped_release release;
    const OnDevice on(links.device());
    program_->forward(calls, of_call, links.links(), reinterpret_cast<cudaStream_t>(stream));
  }

  // [member] dout, q, k, v, out, lse, dq, dk, dv, kept and, where there is a sink, dsink
  void backward(DeviceLinks& links, const std::vector<std::vector<DeviceArray>>& arrays,
                const CallOptions& options, bool deterministic, uintptr_t stream) const {
    std::vector<RankBackwardCall> calls;
    for (size_t member = 0; member < hosting_.hosted().size(); ++member)
      calls.push_back(backward_call(member, arrays.at(member), options.sink.has_value()));
    RankCallOptions of_call = call_options(options);
    of_call.deterministic = deterministic;
    const py::gil_scoped_release release;
    const OnDevice on(links.device());
    program_->backward(calls, of_call, links.links(), reinterpret_cast<cudaStream_t>(stream));
  }

 private:
  RankBackwardCall backward_call(size_t member, const std::vector<DeviceArray>& x,
                                 bool sink) const {
    require(x.size() == (sink ? 11 : 10),
            "expected dout, q, k, v, out, lse, dq, dk, dv, kept, dsink");
    const Extent of_q = queries(member, made_for_.head_dim_qk);
    const Extent of_out = queries(member, made_for_.head_dim_v);
    const Extent of_k = keys(member, made_for_.head_dim_qk);
    const Extent of_v = keys(member, made_for_.head_dim_v);
    const auto q = array(x[1], "q", of_q);
    RankBackwardCall call{same_type(array(x[0], "dout", of_out), q, "dout"),
                          q,
                          same_type(array(x[2], "k", of_k), q, "k"),
                          same_type(array(x[3], "v", of_v), q, "v"),
                          array(x[4], "out", of_out),
                          lse_array(x[5], heads(), of_q.rows),
                          array(x[6], "dq", of_q),
                          array(x[7], "dk", of_k),
                          array(x[8], "dv", of_v)};
    call.kept = kept(member, x[9]);
    if (sink) call.dsink = const_cast<float*>(floats(x[10], "dsink", heads()));
    return call;
  }

  // Bytes, as many as the program keeps of the rank.
  std::byte* kept(size_t member, const DeviceArray& x) const {
    require(x.dtype == "uint8" && x.shape == std::vector<int64_t>{kept_bytes_[member]},
            "kept keys are ", x.dtype, " ", x.shape_text(), "; expected uint8 [",
            kept_bytes_[member], "]");
    return reinterpret_cast<std::byte*>(x.data);
  }

  RankCallOptions call_options(const CallOptions& options) const {
    RankCallOptions of_call;
    of_call.sinks = floats(options.sink, "sink", heads());
    of_call.options = options.score_options(heads(), made_for_.head_dim_qk);
    return of_call;
  }

  move::GlobalArray array(const DeviceArray& x, const char* name, const Extent& want) const {
    return global_array(x, concat(name, "_r"), want);
  }
  Extent queries(size_t member, int dim) const { return {sizes_.rows_q[member], heads(), dim}; }
  Extent keys(size_t member, int dim) const {
    return {sizes_.rows_k[member], sizes_.kv_heads, dim};
  }
  int heads() const { return sizes_.heads; }

  Hosting hosting_;
  SizesOfRanks sizes_;
  int made_on_;
  ProgramOptions made_for_;
  std::unique_ptr<RankProgram> program_;
  std::vector<int64_t> kept_bytes_;  // of each hosted rank
};

// What tells a device apart from all others of a host, and its number of bytes.
std::string device_identity(int device) {
  cudaDeviceProp properties{};
  RINGSIDE_CUDA(cudaGetDeviceProperties(&properties, device));
  std::string text;
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char byte : properties.uuid.bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

py::bytes nccl_id(const std::string& library) {
  NcclUniqueId id{};
  const NcclLibrary nccl(library);
  nccl.check(nccl.get_unique_id(&id), "ncclGetUniqueId");
  return {id.bytes.data(), id.bytes.size()};
}

void bind_links(py::module_& m) {
  py::class_<DeviceLinks>(m, "DeviceLinks", "See optimized/links/links.h.")
      .def(py::init<int, int, int, const std::string&>(), "device"_a, "mine"_a, "processes"_a,
           "words_path"_a)
      .def("reserve", &DeviceLinks::reserve, "bytes"_a,
           "Makes room for calls; whether the workspace is another one.")
      .def("forget_workspace", &DeviceLinks::forget_workspace, "Frees the one before.")
      .def("unmap_workspaces", &DeviceLinks::unmap_workspaces, "Those of other processes.")
      .def("free_workspace", &DeviceLinks::free_workspace,
           "Gives it back, once all processes have unmapped those of others.")
      .def("workspace_handle", &DeviceLinks::workspace_handle, "For map_workspace elsewhere.")
      .def("meet_peers", &DeviceLinks::meet_peers, "words_paths"_a, "Opens the words of all.")
      .def("map_workspace", &DeviceLinks::map_workspace, "process"_a, "handle"_a,
           "Maps the workspace of another process.")
      .def("meet_nccl", &DeviceLinks::meet_nccl, "library"_a, "id"_a,
           "Makes a communicator of NCCL's; every process calls it.")
      .def("abort", &DeviceLinks::abort, "Frees the streams; what is still to end is NaN.")
      .def("guard", &DeviceLinks::guard, "patience_s"_a,
           "Aborts of itself where a call stands still for so long, whoever holds the interpreter.")
      .def("is_idle", &DeviceLinks::is_idle, "Whether all calls have ended.")
      .def("progress", &DeviceLinks::progress,
           "Calls started, calls completed, the step at which messages are on their way or -1, "
           "whether messages of another call came, whether it was aborted. Calls nothing of "
           "CUDA's.");
}

void bind_rank_program(py::module_& m) {
  py::class_<RanksOfProcess>(m, "RankProgram", "See optimized/ranks/program.h.")
      .def(py::init<const Plan&, const std::vector<std::vector<int>>&, int, const DeviceArray&,
                    const DeviceArray&, int, const CallOptions&, bool, bool>(),
           "plan"_a, "processes"_a, "mine"_a, "q"_a, "v"_a, "device"_a, "options"_a, "keep_kv"_a,
           "poison"_a)
      .def(py::init<const Capacity&, const std::vector<std::vector<int>>&, int, const DeviceArray&,
                    const DeviceArray&, int, const CallOptions&, bool, bool>(),
           "capacity"_a, "processes"_a, "mine"_a, "q"_a, "v"_a, "device"_a, "options"_a,
           "keep_kv"_a, "poison"_a)
      .def_property_readonly("device", &RanksOfProcess::device, "On which it was made.")
      .def("set_lengths", &RanksOfProcess::set_lengths, "q"_a, "k"_a, "stream"_a,
           "Of a program of capacity: as Program's, the lengths of all ranks.")
      .def("lengths_fitted", &RanksOfProcess::lengths_fitted, "stream"_a,
           "Whether all lengths since the last question fitted, and were those of all other "
           "processes wherever a pass ran; synchronizes.")
      .def_property_readonly("family", &RanksOfProcess::family, "The kernels it runs.")
      .def_property_readonly("workspace_bytes", &RanksOfProcess::workspace_bytes,
                             "Of the links, for either pass.")
      .def_property_readonly("kept_bytes", &RanksOfProcess::kept_bytes,
                             "Of each hosted rank, what it keeps from forward to backward.")
      .def_property_readonly("bytes_sent", &RanksOfProcess::bytes_sent,
                             "To other processes, by both passes.")
      .def("attach", &RanksOfProcess::attach, "links"_a, "kind"_a,
           "Before the first call, and before calls over other links.")
      .def("make_room_to_rehearse", &RanksOfProcess::make_room_to_rehearse,
           "What may fail of it, in a process by itself.")
      .def("rehearse", &RanksOfProcess::rehearse, "links"_a, "times"_a,
           "Microseconds that the messages of both passes take; every process calls it.")
      .def("forward", &RanksOfProcess::forward, "links"_a, "arrays"_a, "options"_a, "max_logit"_a,
           "stream"_a,
           "Launches on a stream; arrays are q, k, v, out, lse, kept of each hosted rank.")
      .def("backward", &RanksOfProcess::backward, "links"_a, "arrays"_a, "options"_a,
           "deterministic"_a, "stream"_a,
           "Launches on a stream; arrays are dout, q, k, v, out, lse, dq, dk, dv, kept and, where "
           "there is a sink, dsink of each hosted rank.");
}

}  // namespace

void bind_ranks(py::module_& m) {
  py::register_exception<NcclError>(m, "NcclError", PyExc_RuntimeError).doc() =
      "A call of NCCL's that failed, or a library that is none.";
  bind_links(m);
  bind_rank_program(m);
  m.def("device_identity", &device_identity, "device"_a, "Alike in all processes that see it.");
  m.def("nccl_id", &nccl_id, "library"_a, "A new id for a communicator.");
}

}  // namespace ringside::bindings
