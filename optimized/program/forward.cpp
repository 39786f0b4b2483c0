// A plan's forward pass on one GPU: attention() of reference/execute.cpp, launch by launch.
#include <cmath>

#include "optimized/program/parts.h"

namespace ringside {
namespace {

template <typename Parts>
class Forward {
 public:
  Forward(const Parts& parts, const ForwardCall& call, cudaStream_t stream)
      : c(parts),
        t(parts.tables),
        p(parts.forward),
        call_(call),
        run_(t, c.options, call.workspace, p.arena.bytes(), stream),
        stream_(stream) {}

  void bring_home() {
    move::shard(q_rows_, call_.q, run_.at(p.q[0]), c.shape.type, stream_);
    move::shard(kv_rows_, call_.k, run_.at(p.k[0]), c.shape.type, stream_);
    move::shard(kv_rows_, call_.v, run_.at(p.v[0]), c.shape.type, stream_);
    start_results();
    if (call_.max_logit != nullptr)
      move::start_max_logit(call_.max_logit, t.problem.num_heads, stream_);
  }

  void exchange(const StepTables& step) {
    if (step.q_epoch != q_epoch_) {
      q_epoch_ = step.q_epoch;
      run_.carry(p.q, t.q, q_epoch_, qk * bytes);
      start_results();
    }
    if (step.kv_epoch != kv_epoch_) {
      kv_epoch_ = step.kv_epoch;
      run_.carry(p.k, t.kv, kv_epoch_, qk * bytes);
      run_.carry(p.v, t.kv, kv_epoch_, v * bytes);
    }
  }

  void attend(const StepTables& step) {
    for (const Launch& launch : step.launches) attend(launch);
    accumulate_ = Accumulate::merge;
  }

  void attend(const Launch& launch) const {
    const RankStack &qs = t.q[q_epoch_].stack, &ks = t.kv[kv_epoch_].stack;
    RINGSIDE_CUDA(c.family.forward(
        {.shape = c.shape_of(launch),
         .q = run_.matrix(p.q[q_epoch_], qs, launch.q_matrix, qk, bytes),
         .k = run_.matrix(p.k[kv_epoch_], ks, launch.k_matrix, qk, bytes),
         .v = run_.matrix(p.v[kv_epoch_], ks, launch.k_matrix, v, bytes),
         .out = run_.matrix(p.out[q_epoch_], qs, launch.q_matrix, v, sizeof(float)),
         .lse = run_.cells(p.lse[q_epoch_], qs, launch.q_matrix),
         .work = t.work_list(launch.forward),
         .options = call_.options,
         .max_logit = reinterpret_cast<int32_t*>(call_.max_logit),
         .layout = c.layout,
         .accumulate = accumulate_,
         .workspace = run_.at(p.of_family)},
        stream_));
  }

  void send_home() {
    for (; q_epoch_ > 0; --q_epoch_)  // the way q came
      for (const auto& round : t.q[q_epoch_].carry_back)
        move::merge(t.span(round), results(q_epoch_), results(q_epoch_ - 1), v, stream_);
    if (call_.sinks != nullptr)
      move::merge_sinks(q_rows_, {call_.sinks, t.problem.num_heads}, results(0), v, c.layout,
                        stream_);
    move::unshard(q_rows_, run_.floats(p.out[0]), call_.out, stream_, c.layout);
    move::unshard_lse(q_rows_, run_.floats(p.lse[0]), call_.lse, stream_);
    if (call_.max_logit != nullptr)
      move::finish_max_logit(call_.max_logit, t.problem.num_heads, stream_);
  }

 private:
  move::Results results(int epoch) const {
    return {run_.floats(p.out[epoch]), run_.floats(p.lse[epoch])};
  }

  void start_results() {  // (0, -inf): saw nothing
    const RankStack& stack = t.q[q_epoch_].stack;
    run_.zero(p.out[q_epoch_], c.cells_of_results(stack) * v * int64_t{sizeof(float)});
    move::fill(run_.floats(p.lse[q_epoch_]), stack.cells, -INFINITY, stream_);
    accumulate_ = Accumulate::start;
  }

  const Parts& c;
  const ProgramTables& t;
  const ForwardPlaces& p;
  const ForwardCall& call_;
  Run run_;
  cudaStream_t stream_;
  move::RowMap q_rows_ = t.row_map(t.q_rows), kv_rows_ = t.row_map(t.kv_rows);
  int q_epoch_ = 0, kv_epoch_ = 0;
  Accumulate accumulate_ = Accumulate::start;  // of the launches to come
  int qk = c.shape.head_dim_qk, v = c.shape.head_dim_v, bytes = move::bytes_of(c.shape.type);
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
