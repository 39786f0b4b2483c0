// A plan's forward pass on one GPU: attention() of reference/execute/execute.cpp, launch by launch.
#include <cmath>

#include "optimized/program/parts.h"

namespace ringside {
namespace {

class Forward {
 public:
  Forward(const ProgramParts& parts, const ForwardCall& call, cudaStream_t stream)
      : parts_(parts),
        tables_(parts.tables),
        buffers_(parts.forward),
        call_(call),
        workspace_(tables_, parts_.options, call.workspace, buffers_.arena.bytes(), stream),
        stream_(stream) {}

  void bring_home() {
    move::shard(q_rows_, call_.q, workspace_.at(buffers_.q[0]), parts_.shape.type, stream_);
    move::shard(kv_rows_, call_.k, workspace_.at(buffers_.k[0]), parts_.shape.type, stream_);
    move::shard(kv_rows_, call_.v, workspace_.at(buffers_.v[0]), parts_.shape.type, stream_);
    start_results();
    if (call_.max_logit != nullptr)
      move::start_max_logit(call_.max_logit, tables_.problem.num_heads, stream_);
  }

  void exchange(const StepTables& step) {
    if (step.q_residency != q_residency_) {
      q_residency_ = step.q_residency;
      workspace_.carry(buffers_.q, tables_.q, q_residency_, dim_qk_ * element_bytes_);
      start_results();
    }
    if (step.kv_residency != kv_residency_) {
      kv_residency_ = step.kv_residency;
      workspace_.carry(buffers_.k, tables_.kv, kv_residency_, dim_qk_ * element_bytes_);
      workspace_.carry(buffers_.v, tables_.kv, kv_residency_, dim_v_ * element_bytes_);
    }
  }

  void attend(const StepTables& step) {
    for (const Launch& launch : step.launches) attend(launch);
    accumulate_ = Accumulate::merge;
  }

  void attend(const Launch& launch) const {
    const RankStack &qs = tables_.q[q_residency_].stack, &ks = tables_.kv[kv_residency_].stack;
    RINGSIDE_CUDA(parts_.family.forward(
        {.shape = parts_.shape_of(launch),
         .q = workspace_.matrix(buffers_.q[q_residency_], qs, launch.q_matrix, dim_qk_,
                                element_bytes_),
         .k = workspace_.matrix(buffers_.k[kv_residency_], ks, launch.k_matrix, dim_qk_,
                                element_bytes_),
         .v = workspace_.matrix(buffers_.v[kv_residency_], ks, launch.k_matrix, dim_v_,
                                element_bytes_),
         .out = workspace_.matrix(buffers_.out[q_residency_], qs, launch.q_matrix, dim_v_,
                                  sizeof(float)),
         .lse = LseCells::of_home(workspace_.cells(buffers_.lse[q_residency_], qs, launch.q_matrix),
                                  parts_.shape_of(launch)),
         .work = tables_.work_list(launch.forward),
         .options = call_.options,
         .max_logit = reinterpret_cast<int32_t*>(call_.max_logit),
         .layout = parts_.layout,
         .accumulate = accumulate_,
         .workspace = workspace_.at(buffers_.of_family)},
        stream_));
  }

  void send_home() {
    for (; q_residency_ > 0; --q_residency_) {  // the way q came
      const Residency& from = tables_.q[q_residency_];
      for (const auto& round : from.carry_back)
        move::merge(tables_.blocks(from, round), results(q_residency_), results(q_residency_ - 1),
                    dim_v_, stream_);
    }
    if (call_.sinks != nullptr)
      move::merge_sinks(q_rows_, {call_.sinks, tables_.problem.num_heads}, results(0), dim_v_,
                        parts_.layout, stream_);
    move::unshard(q_rows_, workspace_.floats(buffers_.out[0]), call_.out, stream_, parts_.layout);
    move::unshard_lse(q_rows_, workspace_.floats(buffers_.lse[0]), call_.lse, stream_);
    if (call_.max_logit != nullptr)
      move::finish_max_logit(call_.max_logit, tables_.problem.num_heads, stream_);
  }

 private:
  move::Results results(int residency) const {
    return {workspace_.floats(buffers_.out[residency]), workspace_.floats(buffers_.lse[residency])};
  }

  void start_results() {  // (0, -inf): saw nothing
    const RankStack& stack = tables_.q[q_residency_].stack;
    workspace_.zero(buffers_.out[q_residency_],
                    parts_.cells_of_results(stack) * dim_v_ * int64_t{sizeof(float)});
    move::fill(workspace_.floats(buffers_.lse[q_residency_]), stack.cells, -INFINITY, stream_);
    accumulate_ = Accumulate::start;
  }

  const ProgramParts& parts_;
  const ProgramTables& tables_;
  const ForwardBuffers& buffers_;
  const ForwardCall& call_;
  CallWorkspace workspace_;
  cudaStream_t stream_;
  move::RowMap q_rows_ = tables_.row_map(tables_.q_rows);
  move::RowMap kv_rows_ = tables_.row_map(tables_.kv_rows);
  int q_residency_ = 0, kv_residency_ = 0;
  Accumulate accumulate_ = Accumulate::start;  // of the launches to come
  int dim_qk_ = parts_.shape.head_dim_qk, dim_v_ = parts_.shape.head_dim_v;
  int element_bytes_ = move::bytes_of(parts_.shape.type);
};

}  // namespace

void CudaProgram::forward(const ForwardCall& call, cudaStream_t stream) const {
  parts_->require_current();
  parts_->require_rows(call);
  if (parts_->in_place) return parts_->forward_in_place(call, stream);
  const ForwardCall at_home = parts_->at_home(call);
  Forward forward(*parts_, at_home, stream);
  forward.bring_home();
  for (const StepTables& step : parts_->tables.steps) {
    forward.exchange(step);
    forward.attend(step);
  }
  forward.send_home();
}

}  // namespace ringside
