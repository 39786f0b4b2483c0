// A plan's backward pass on one GPU: attention_backward() of reference/execute/execute.cpp, launch
// by launch.
#include "optimized/program/parts.h"

namespace ringside {
namespace {

class Backward {
 public:
  Backward(const ProgramParts& parts, const BackwardCall& call, cudaStream_t stream)
      : parts_(parts),
        tables_(parts.tables),
        buffers_(parts.backward),
        call_(call),
        workspace_(tables_, parts_.options, call.workspace, buffers_.arena.bytes(), stream),
        stream_(stream) {}

  void bring_home() const {
    move::shard(q_rows_, call_.q, workspace_.at(buffers_.q[0]), parts_.shape.type, stream_);
    move::shard(q_rows_, call_.dout, workspace_.at(buffers_.dout[0]), parts_.shape.type, stream_);
    move::shard_softmax(q_rows_, call_.dout, call_.out, call_.lse,
                        {workspace_.floats(buffers_.delta[0]), workspace_.floats(buffers_.lse[0])},
                        stream_);
    move::shard(kv_rows_, call_.k, workspace_.at(buffers_.k[0]), parts_.shape.type, stream_);
    move::shard(kv_rows_, call_.v, workspace_.at(buffers_.v[0]), parts_.shape.type, stream_);
    if (call_.sinks != nullptr)
      move::sink_gradients(q_rows_, tables_.unseen_rows(), {call_.sinks, tables_.problem.num_heads},
                           workspace_.floats(buffers_.lse[0]), workspace_.floats(buffers_.delta[0]),
                           call_.dsink, stream_);
  }

  // Once more through the exchanges, keeping what was resident in each step.
  void exchange_all() {
    for (q_residency_ = 1; q_residency_ < static_cast<int>(tables_.q.size()); ++q_residency_) {
      workspace_.carry(buffers_.q, tables_.q, q_residency_, dim_qk_ * element_bytes_);
      workspace_.carry(buffers_.dout, tables_.q, q_residency_, dim_v_ * element_bytes_);
      workspace_.carry(buffers_.lse, tables_.q, q_residency_, sizeof(float));
      workspace_.carry(buffers_.delta, tables_.q, q_residency_, sizeof(float));
    }
    for (kv_residency_ = 1; kv_residency_ < static_cast<int>(tables_.kv.size()); ++kv_residency_) {
      workspace_.carry(buffers_.k, tables_.kv, kv_residency_, dim_qk_ * element_bytes_);
      workspace_.carry(buffers_.v, tables_.kv, kv_residency_, dim_v_ * element_bytes_);
    }
    --q_residency_, --kv_residency_;
    workspace_.zero(buffers_.dq[q_residency_],
                    tables_.q[q_residency_].stack.cells * dim_qk_ * int64_t{sizeof(float)});
    start_key_gradients();
  }

  // Gradients go back the way their operands came. Those of keys and values wait until the step
  // has written its own: the first launch finds zeros, and need not add.
  void exchange_back(int q_residency, int kv_residency) {
    while (kv_residency_ > kv_residency) {
      add_late_key_gradients();
      --kv_residency_;
      start_key_gradients();
      late_ = true;
    }
    for (; q_residency_ > q_residency; --q_residency_)
      workspace_.carry_back(buffers_.dq, tables_.q, q_residency_, dim_qk_);
  }

  void differentiate(const StepTables& step) {
    for (const Launch& launch : step.launches) differentiate(launch);
    accumulate_ = Accumulate::merge;
    add_late_key_gradients();
  }

  void send_home() {
    exchange_back(0, 0);
    add_late_key_gradients();
    move::unshard(q_rows_, workspace_.floats(buffers_.dq[0]), call_.dq, stream_);
    move::unshard(kv_rows_, workspace_.floats(buffers_.dk[0]), call_.dk, stream_);
    move::unshard(kv_rows_, workspace_.floats(buffers_.dv[0]), call_.dv, stream_);
  }

 private:
  void start_key_gradients() {
    const int64_t cells = tables_.kv[kv_residency_].stack.cells;
    workspace_.zero(buffers_.dk[kv_residency_], cells * dim_qk_ * int64_t{sizeof(float)});
    workspace_.zero(buffers_.dv[kv_residency_], cells * dim_v_ * int64_t{sizeof(float)});
    accumulate_ = Accumulate::start;
  }

  void add_late_key_gradients() {
    if (!late_) return;
    workspace_.add_back(buffers_.dk, tables_.kv, kv_residency_ + 1, dim_qk_);
    workspace_.add_back(buffers_.dv, tables_.kv, kv_residency_ + 1, dim_v_);
    late_ = false;
  }

  void differentiate(const Launch& launch) const {
    const RankStack &qs = tables_.q[q_residency_].stack, &ks = tables_.kv[kv_residency_].stack;
    RINGSIDE_CUDA(parts_.family.backward(
        {.shape = parts_.shape_of(launch),
         .q = workspace_.matrix(buffers_.q[q_residency_], qs, launch.q_matrix, dim_qk_,
                                element_bytes_),
         .k = workspace_.matrix(buffers_.k[kv_residency_], ks, launch.k_matrix, dim_qk_,
                                element_bytes_),
         .v = workspace_.matrix(buffers_.v[kv_residency_], ks, launch.k_matrix, dim_v_,
                                element_bytes_),
         .dout = workspace_.matrix(buffers_.dout[q_residency_], qs, launch.q_matrix, dim_v_,
                                   element_bytes_),
         .lse = workspace_.cells(buffers_.lse[q_residency_], qs, launch.q_matrix),
         .delta = workspace_.cells(buffers_.delta[q_residency_], qs, launch.q_matrix),
         .dq = workspace_.matrix(buffers_.dq[q_residency_], qs, launch.q_matrix, dim_qk_,
                                 sizeof(float)),
         .dk = workspace_.matrix(buffers_.dk[kv_residency_], ks, launch.k_matrix, dim_qk_,
                                 sizeof(float)),
         .dv = workspace_.matrix(buffers_.dv[kv_residency_], ks, launch.k_matrix, dim_v_,
                                 sizeof(float)),
         .queries = tables_.work_list(launch.backward_queries),
         .keys = tables_.work_list(launch.backward_keys),
         .deterministic = call_.deterministic,
         .options = call_.options,
         .accumulate = accumulate_,
         .workspace = workspace_.at(buffers_.of_family)},
        stream_));
  }

  const ProgramParts& parts_;
  const ProgramTables& tables_;
  const BackwardBuffers& buffers_;
  const BackwardCall& call_;
  CallWorkspace workspace_;
  cudaStream_t stream_;
  move::RowMap q_rows_ = tables_.row_map(tables_.q_rows);
  move::RowMap kv_rows_ = tables_.row_map(tables_.kv_rows);
  int q_residency_ = 0, kv_residency_ = 0;
  Accumulate accumulate_ = Accumulate::start;  // of the launches to come, into dk and dv
  bool late_ = false;  // dk and dv of the residency after are still to be added
  int dim_qk_ = parts_.shape.head_dim_qk, dim_v_ = parts_.shape.head_dim_v;
  int element_bytes_ = move::bytes_of(parts_.shape.type);
};

}  // namespace

void CudaProgram::backward(const BackwardCall& call, cudaStream_t stream) const {
  parts_->require_current();
  parts_->require_rows(call);
  if (parts_->in_place) return parts_->backward_in_place(call, stream);
  const BackwardCall at_home = parts_->at_home(call);
  Backward backward(*parts_, at_home, stream);
  backward.bring_home();
  backward.exchange_all();
  const auto& steps = parts_->tables.steps;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    backward.exchange_back(step->q_residency, step->kv_residency);
    backward.differentiate(*step);
  }
  backward.send_home();
}

}  // namespace ringside
