// One rank that owns every row in order: kernels work on the caller's arrays, and rows that they do
// not write are cleared apart. Only what backward kernels read of the softmax, and, where several
// items of keys add to dq, its sums pass through the workspace.
#include "optimized/program/stack_parts.h"

namespace ringside {
namespace {

void check_aligned(const move::GlobalArray& x, const char* name) {
  const int64_t element = move::bytes_of(x.type);
  require(reinterpret_cast<uintptr_t>(x.matrix.data) % 16 == 0 &&
              x.matrix.row_stride * element % 16 == 0 && x.matrix.head_stride * element % 16 == 0,
          name, " has rows or heads that do not begin at multiples of 16 bytes. Copy it");
}

// Rows of dk, dv and, if given, dq.
void clear_unseen(const StackParts& parts, const BackwardCall& call, const move::GlobalArray* dq,
                  cudaStream_t stream) {
  if (parts.every_row_is_seen) return;
  const UnseenRows unseen = parts.unseen_rows();
  const int rows_k = parts.members[0].kv.home_of_global.size;
  move::clear_unseen_keys(unseen, call.dk, call.dv, rows_k, stream);
  if (dq == nullptr) return;
  const int rows_q = parts.members[0].q.home_of_global.size;
  move::clear_unseen_queries(unseen, *dq, rows_q, stream);
}

LseCells lse_cells(const DeviceMatrix& lse) {
  return {static_cast<float*>(lse.data), lse.row_stride, lse.head_stride};
}

// visit(operation, its tables) for the tiles of a pass; not where an array has no rows, which may
// lie nowhere.
template <typename Visit>
void for_each_launch(const StackParts& program, const PassParts& parts, Visit visit) {
  const MemberRows& rows = program.members[0];
  if (rows.q.home_of_global.size == 0 || rows.kv.home_of_global.size == 0) return;
  const auto& operations = parts.pass.hosted()[0].operations;
  for (size_t i = 0; i < operations.size(); ++i)
    if (operations[i].kind == OperationKind::compute) visit(operations[i], parts.operations[0][i]);
}

void poison(const StackParts& parts, const RunsOn& on, int64_t bytes) {
  if (parts.options.poison == Poison::on && bytes > 0)
    RINGSIDE_CUDA(cudaMemsetAsync(on.workspace, 0xff, static_cast<size_t>(bytes), on.stream));
}

}  // namespace

void StackParts::forward_in_place(const ForwardCall& call, const RunsOn& on) const {
  require(call.sinks == nullptr || options.sinks, "sinks, which the program was not made for");
  check_aligned(call.q, "q"), check_aligned(call.k, "k"), check_aligned(call.v, "v");
  check_aligned(call.out, "out");
  poison(*this, on, forward.end);
  if (call.max_logit != nullptr)
    move::start_max_logit(call.max_logit, problem.num_heads, on.stream);
  for_each_launch(*this, forward, [&](const Operation& op, const OperationTables& tables_of) {
    RINGSIDE_CUDA(family.forward({.shape = shape_of(forward.pass.hosted()[0], op),
                                  .q = call.q.matrix,
                                  .k = call.k.matrix,
                                  .v = call.v.matrix,
                                  .out = call.out.matrix,
                                  .lse = lse_cells(call.lse.matrix),
                                  .work = work_list(tables_of.forward),
                                  .options = call.options,
                                  .sinks = call.sinks,
                                  .max_logit = reinterpret_cast<int32_t*>(call.max_logit),
                                  .accumulate = Accumulate::only,
                                  .workspace = on.workspace + forward.of_family},
                                 on.stream));
  });
  if (call.max_logit != nullptr)
    move::finish_max_logit(call.max_logit, problem.num_heads, on.stream);
  if (!every_row_is_seen)
    move::clear_unseen_results(unseen_rows(), call.out, call.lse, call.sinks, rows_q(), on.stream);
}

void StackParts::backward_in_place(const BackwardCall& call, const RunsOn& on) const {
  require(call.sinks == nullptr || options.sinks, "sinks, which the program was not made for");
  check_aligned(call.q, "q"), check_aligned(call.k, "k"), check_aligned(call.v, "v");
  check_aligned(call.dout, "dout"), check_aligned(call.dq, "dq");
  check_aligned(call.dk, "dk"), check_aligned(call.dv, "dv");
  poison(*this, on, backward.end);
  const move::RowMap q_rows = row_map(members[0].q);
  const auto floats = [&](int64_t offset) {
    return reinterpret_cast<float*>(on.workspace + offset);
  };
  float *lse = floats(backward.places[0].lse), *delta = floats(backward.places[0].delta);
  move::shard_softmax(q_rows, call.dout, call.out, call.lse, {delta, lse}, on.stream);
  if (call.sinks != nullptr)
    move::sink_gradients(q_rows, unseen_rows(), {call.sinks, problem.num_heads}, lse, delta,
                         call.dsink, on.stream);

  const bool alone = keys_in_one_item;
  const bool summed = !call.deterministic && !alone;  // dq, in float32
  const int heads = home_q.matrices[0].heads.size(), dim = shape.head_dim_qk;
  const DeviceMatrix sums{floats(dq_in_place), int64_t{heads} * dim, dim, home_q.matrices[0].rows};
  DeviceMatrix dq = call.dq.matrix;
  if (summed) {
    dq = sums;
    const int64_t bytes = home_q.cells * dim * int64_t{sizeof(float)};
    if (bytes > 0)
      RINGSIDE_CUDA(cudaMemsetAsync(dq.data, 0, static_cast<size_t>(bytes), on.stream));
  }
  for_each_launch(*this, backward, [&](const Operation& op, const OperationTables& tables_of) {
    RINGSIDE_CUDA(family.backward({.shape = shape_of(backward.pass.hosted()[0], op),
                                   .q = call.q.matrix,
                                   .k = call.k.matrix,
                                   .v = call.v.matrix,
                                   .dout = call.dout.matrix,
                                   .lse = lse,
                                   .delta = delta,
                                   .dq = dq,
                                   .dk = call.dk.matrix,
                                   .dv = call.dv.matrix,
                                   .queries = work_list(tables_of.backward_queries),
                                   .keys = work_list(tables_of.backward_keys),
                                   .deterministic = call.deterministic && !alone,
                                   .options = call.options,
                                   .accumulate = Accumulate::only,
                                   .one_item_of_keys = alone,
                                   .workspace = on.workspace + backward.of_family,
                                   .carried = carries_dq ? sums : DeviceMatrix{}},
                                  on.stream));
  });
  if (summed) move::unshard(q_rows, floats(dq_in_place), call.dq, on.stream);
  clear_unseen(*this, call, summed ? nullptr : &call.dq, on.stream);
}

}  // namespace ringside
