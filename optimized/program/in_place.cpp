// One rank that owns every row in order: kernels work on the caller's arrays, and rows that they do
// not write are cleared apart. Only what backward kernels read of the softmax, and, where several
// items of keys add to dq, its sums pass through the workspace.
#include "optimized/program/parts.h"

namespace ringside {
namespace {

void check_aligned(const move::GlobalArray& x, const char* name) {
  const int64_t element = move::bytes_of(x.type);
  require(reinterpret_cast<uintptr_t>(x.matrix.data) % 16 == 0 &&
              x.matrix.row_stride * element % 16 == 0 && x.matrix.head_stride * element % 16 == 0,
          name, " has rows or heads that do not begin at multiples of 16 bytes. Copy it");
}

// Rows of dk, dv and, if given, dq.
void clear_unseen(const ProgramTables& tables, const BackwardCall& call,
                  const move::GlobalArray* dq, cudaStream_t stream) {
  if (tables.every_row_is_seen) return;
  const UnseenRows unseen = tables.unseen_rows();
  const int rows_k = tables.row_map(tables.kv_rows).home_of_global.size;
  move::clear_unseen_keys(unseen, call.dk, call.dv, rows_k, stream);
  if (dq == nullptr) return;
  const int rows_q = tables.row_map(tables.q_rows).home_of_global.size;
  move::clear_unseen_queries(unseen, *dq, rows_q, stream);
}

LseCells lse_cells(const DeviceMatrix& lse) {
  return {static_cast<float*>(lse.data), lse.row_stride, lse.head_stride};
}

// None where an array has no rows, which may lie nowhere.
const std::vector<Launch>& launches_of(const ProgramTables& tables) {
  static const std::vector<Launch> kNone;
  const bool no_rows = tables.row_map(tables.q_rows).home_of_global.size == 0 ||
                       tables.row_map(tables.kv_rows).home_of_global.size == 0;
  return no_rows ? kNone : tables.steps[0].launches;
}

}  // namespace

void ProgramParts::forward_in_place(const ForwardCall& call, cudaStream_t stream) const {
  require(call.sinks == nullptr || options.sinks, "sinks, which the program was not made for");
  check_aligned(call.q, "q"), check_aligned(call.k, "k"), check_aligned(call.v, "v");
  check_aligned(call.out, "out");
  const CallWorkspace workspace(tables, options, call.workspace, forward.arena.bytes(), stream);
  if (call.max_logit != nullptr)
    move::start_max_logit(call.max_logit, tables.problem.num_heads, stream);
  for (const Launch& launch : launches_of(tables))
    RINGSIDE_CUDA(family.forward({.shape = shape_of(launch),
                                  .q = call.q.matrix,
                                  .k = call.k.matrix,
                                  .v = call.v.matrix,
                                  .out = call.out.matrix,
                                  .lse = lse_cells(call.lse.matrix),
                                  .work = tables.work_list(launch.forward),
                                  .options = call.options,
                                  .sinks = call.sinks,
                                  .max_logit = reinterpret_cast<int32_t*>(call.max_logit),
                                  .accumulate = Accumulate::only,
                                  .workspace = workspace.at(forward.of_family)},
                                 stream));
  if (call.max_logit != nullptr)
    move::finish_max_logit(call.max_logit, tables.problem.num_heads, stream);
  if (!tables.every_row_is_seen)
    move::clear_unseen_results(tables.unseen_rows(), call.out, call.lse, call.sinks, rows_q(),
                               stream);
}

void ProgramParts::backward_in_place(const BackwardCall& call, cudaStream_t stream) const {
  require(call.sinks == nullptr || options.sinks, "sinks, which the program was not made for");
  check_aligned(call.q, "q"), check_aligned(call.k, "k"), check_aligned(call.v, "v");
  check_aligned(call.dout, "dout"), check_aligned(call.dq, "dq");
  check_aligned(call.dk, "dk"), check_aligned(call.dv, "dv");
  const CallWorkspace workspace(tables, options, call.workspace, backward.arena.bytes(), stream);
  const RankStack& q = tables.q[0].stack;
  const move::RowMap q_rows = tables.row_map(tables.q_rows);
  float *lse = workspace.floats(backward.lse[0]), *delta = workspace.floats(backward.delta[0]);
  move::shard_softmax(q_rows, call.dout, call.out, call.lse, {delta, lse}, stream);
  if (call.sinks != nullptr)
    move::sink_gradients(q_rows, tables.unseen_rows(), {call.sinks, tables.problem.num_heads}, lse,
                         delta, call.dsink, stream);

  const bool alone = keys_in_one_item();
  const bool summed = !call.deterministic && !alone;  // dq, in float32
  DeviceMatrix dq = call.dq.matrix;
  if (summed) {
    workspace.zero(backward.dq[0], q.cells * shape.head_dim_qk * int64_t{sizeof(float)});
    dq = workspace.matrix(backward.dq[0], q, 0, shape.head_dim_qk, sizeof(float));
  }
  for (const Launch& launch : launches_of(tables))
    RINGSIDE_CUDA(family.backward({.shape = shape_of(launch),
                                   .q = call.q.matrix,
                                   .k = call.k.matrix,
                                   .v = call.v.matrix,
                                   .dout = call.dout.matrix,
                                   .lse = lse,
                                   .delta = delta,
                                   .dq = dq,
                                   .dk = call.dk.matrix,
                                   .dv = call.dv.matrix,
                                   .queries = tables.work_list(launch.backward_queries),
                                   .keys = tables.work_list(launch.backward_keys),
                                   .deterministic = call.deterministic && !alone,
                                   .options = call.options,
                                   .accumulate = Accumulate::only,
                                   .one_item_of_keys = alone,
                                   .workspace = workspace.at(backward.of_family)},
                                  stream));
  if (summed) move::unshard(q_rows, workspace.floats(backward.dq[0]), call.dq, stream);
  clear_unseen(tables, call, summed ? nullptr : &call.dq, stream);
}

}  // namespace ringside
