// A plan's backward pass on one GPU: attention_backward() of reference/execute.cpp, launch by
// launch.
#include "optimized/program/parts.h"

namespace ringside {
namespace {

template <typename Parts>
class Backward {
 public:
  Backward(const Parts& parts, const BackwardCall& call, cudaStream_t stream)
      : c(parts),
        t(parts.tables),
        p(parts.backward),
        call_(call),
        run_(t, c.options, call.workspace, p.arena.bytes(), stream),
        stream_(stream) {}

  void bring_home() const {
    move::shard(q_rows_, call_.q, run_.at(p.q[0]), c.shape.type, stream_);
    move::shard(q_rows_, call_.dout, run_.at(p.dout[0]), c.shape.type, stream_);
    move::shard_softmax(q_rows_, call_.dout, call_.out, call_.lse,
                        {run_.floats(p.delta[0]), run_.floats(p.lse[0])}, stream_);
    move::shard(kv_rows_, call_.k, run_.at(p.k[0]), c.shape.type, stream_);
    move::shard(kv_rows_, call_.v, run_.at(p.v[0]), c.shape.type, stream_);
    if (call_.sinks != nullptr)
      move::sink_gradients(q_rows_, {call_.sinks, t.problem.num_heads}, run_.floats(p.lse[0]),
                           run_.floats(p.delta[0]), call_.dsink, stream_);
  }

  // Once more through the exchanges, keeping what was resident in each step.
  void exchange_all() {
    for (q_epoch_ = 1; q_epoch_ < static_cast<int>(t.q.size()); ++q_epoch_) {
      run_.carry(p.q, t.q, q_epoch_, qk * bytes);
      run_.carry(p.dout, t.q, q_epoch_, v * bytes);
      run_.carry(p.lse, t.q, q_epoch_, sizeof(float));
      run_.carry(p.delta, t.q, q_epoch_, sizeof(float));
    }
    for (kv_epoch_ = 1; kv_epoch_ < static_cast<int>(t.kv.size()); ++kv_epoch_) {
      run_.carry(p.k, t.kv, kv_epoch_, qk * bytes);
      run_.carry(p.v, t.kv, kv_epoch_, v * bytes);
    }
    --q_epoch_, --kv_epoch_;
    run_.zero(p.dq[q_epoch_], t.q[q_epoch_].stack.cells * qk * int64_t{sizeof(float)});
    start_key_gradients();
  }

  // Gradients go back the way their operands came. Those of keys and values wait until the step
  // has written its own: the first launch finds zeros, and need not add.
  void exchange_back(int q_epoch, int kv_epoch) {
    while (kv_epoch_ > kv_epoch) {
      add_late_key_gradients();
      --kv_epoch_;
      start_key_gradients();
      late_ = true;
    }
    for (; q_epoch_ > q_epoch; --q_epoch_) run_.carry_back(p.dq, t.q, q_epoch_, qk);
  }

  void differentiate(const StepTables& step) {
    for (const Launch& launch : step.launches) differentiate(launch);
    accumulate_ = Accumulate::merge;
    add_late_key_gradients();
  }

  void send_home() {
    exchange_back(0, 0);
    add_late_key_gradients();
    move::unshard(q_rows_, run_.floats(p.dq[0]), call_.dq, stream_);
    move::unshard(kv_rows_, run_.floats(p.dk[0]), call_.dk, stream_);
    move::unshard(kv_rows_, run_.floats(p.dv[0]), call_.dv, stream_);
  }

 private:
  void start_key_gradients() {
    const int64_t cells = t.kv[kv_epoch_].stack.cells;
    run_.zero(p.dk[kv_epoch_], cells * qk * int64_t{sizeof(float)});
    run_.zero(p.dv[kv_epoch_], cells * v * int64_t{sizeof(float)});
    accumulate_ = Accumulate::start;
  }

  void add_late_key_gradients() {
    if (!late_) return;
    run_.add_back(p.dk, t.kv, kv_epoch_ + 1, qk);
    run_.add_back(p.dv, t.kv, kv_epoch_ + 1, v);
    late_ = false;
  }

  void differentiate(const Launch& launch) const {
    const RankStack &qs = t.q[q_epoch_].stack, &ks = t.kv[kv_epoch_].stack;
    RINGSIDE_CUDA(c.family.backward(
        {.shape = c.shape_of(launch),
         .q = run_.matrix(p.q[q_epoch_], qs, launch.q_matrix, qk, bytes),
         .k = run_.matrix(p.k[kv_epoch_], ks, launch.k_matrix, qk, bytes),
         .v = run_.matrix(p.v[kv_epoch_], ks, launch.k_matrix, v, bytes),
         .dout = run_.matrix(p.dout[q_epoch_], qs, launch.q_matrix, v, bytes),
         .lse = run_.cells(p.lse[q_epoch_], qs, launch.q_matrix),
         .delta = run_.cells(p.delta[q_epoch_], qs, launch.q_matrix),
         .dq = run_.matrix(p.dq[q_epoch_], qs, launch.q_matrix, qk, sizeof(float)),
         .dk = run_.matrix(p.dk[kv_epoch_], ks, launch.k_matrix, qk, sizeof(float)),
         .dv = run_.matrix(p.dv[kv_epoch_], ks, launch.k_matrix, v, sizeof(float)),
         .queries = t.work_list(launch.backward_queries),
         .keys = t.work_list(launch.backward_keys),
         .deterministic = call_.deterministic,
         .options = call_.options,
         .accumulate = accumulate_,
         .workspace = run_.at(p.of_family)},
        stream_));
  }

  const Parts& c;
  const ProgramTables& t;
  const BackwardPlaces& p;
  const BackwardCall& call_;
  Run run_;
  cudaStream_t stream_;
  move::RowMap q_rows_ = t.row_map(t.q_rows), kv_rows_ = t.row_map(t.kv_rows);
  int q_epoch_ = 0, kv_epoch_ = 0;
  Accumulate accumulate_ = Accumulate::start;  // of the launches to come, into dk and dv
  bool late_ = false;  // dk and dv of the epoch behind are still to be added
  int qk = c.shape.head_dim_qk, v = c.shape.head_dim_v, bytes = move::bytes_of(c.shape.type);
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
    backward.exchange_back(step->q_epoch, step->kv_epoch);
    backward.differentiate(*step);
  }
  backward.send_home();
}

}  // namespace ringside
