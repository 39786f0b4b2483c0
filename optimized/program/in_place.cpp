// One rank that owns every row in order: kernels work on the caller's arrays, and rows that they do
// not write are cleared apart. Only what backward kernels read of the softmax, and, where several
// items of keys add to dq, its sums pass through the workspace; those of dk and dv, where several
// parts of the query heads do.
#include "optimized/program/stack_parts.h"

namespace ringside {
namespace {

void check_aligned(const move::GlobalArray& x, const char* name) {
  const int64_t element = move::bytes_of(x.type);
  require(reinterpret_cast<uintptr_t>(x.matrix.data) % 16 == 0 &&
              x.matrix.row_stride * element % 16 == 0 && x.matrix.head_stride * element % 16 == 0,
          name, " has rows or heads that do not begin at multiples of 16 bytes. Copy it");
}

// Rows of dk and dv, and of dq, unless sums have been copied to them.
void clear_unseen(const StackParts& parts, const BackwardCall& call, bool keys, bool queries,
                  cudaStream_t stream) {
  if (parts.every_row_is_seen) return;
  const UnseenRows unseen = parts.unseen_rows();
  const int rows_k = parts.members[0].kv.home_of_global.size;
  if (keys) move::clear_unseen_keys(unseen, call.dk, call.dv, rows_k, stream);
  const int rows_q = parts.members[0].q.home_of_global.size;
  if (queries) move::clear_unseen_queries(unseen, call.dq, rows_q, stream);
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

// Sums in float32 of rows of a stack, in a workspace.
struct Sums {
  DeviceMatrix matrix;
  size_t bytes;

  Sums(const RankStack& rows, int dim, std::byte* at)
      : matrix{at, int64_t{rows.matrices[0].heads.size()} * dim, dim, rows.matrices[0].rows},
        bytes(static_cast<size_t>(rows.cells) * dim * sizeof(float)) {}
  const float* floats() const { return static_cast<const float*>(matrix.data); }
  void clear(cudaStream_t stream) const {
    if (bytes > 0) RINGSIDE_CUDA(cudaMemsetAsync(matrix.data, 0, bytes, stream));
  }
};

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
  const Sums sums_q(home_q, shape.head_dim_qk, on.workspace + dq_in_place);
  const Sums sums_k(home_k, shape.head_dim_qk, on.workspace + dk_in_place);
  const Sums sums_v(home_k, shape.head_dim_v, on.workspace + dv_in_place);
  const auto arguments_of = [&](const Operation& op, const OperationTables& tables_of,
                                bool in_turn) {
    const bool summed = !alone && (!call.deterministic || in_turn);
    const bool in_parts = summed && !call.deterministic && head_parts > 1;
    return BackwardArguments{
        .shape = shape_of(backward.pass.hosted()[0], op),
        .q = call.q.matrix,
        .k = call.k.matrix,
        .v = call.v.matrix,
        .dout = call.dout.matrix,
        .lse = lse,
        .delta = delta,
        .dq = summed ? sums_q.matrix : call.dq.matrix,
        .dk = in_parts ? sums_k.matrix : call.dk.matrix,
        .dv = in_parts ? sums_v.matrix : call.dv.matrix,
        .queries = work_list(tables_of.backward_queries),
        .keys = work_list(in_turn ? tables_of.keys_in_turn : tables_of.backward_keys),
        .deterministic = call.deterministic && !alone,
        .options = call.options,
        .accumulate = in_parts ? Accumulate::merge : Accumulate::only,
        .one_item_of_keys = alone,
        .workspace = on.workspace + backward.of_family,
        .carried = carries_dq ? sums_q.matrix : DeviceMatrix{},
        .turns = in_turn ? reinterpret_cast<unsigned*>(on.workspace + turns_in_place) : nullptr,
        .head_parts = in_parts ? head_parts : 1};
  };
  bool in_turn = takes_turns && call.deterministic && !alone;
  if (in_turn)
    for_each_launch(*this, backward, [&](const Operation& op, const OperationTables& tables_of) {
      in_turn = in_turn &&
                tables_of.keys_in_turn.items.size == tables_of.backward_keys.items.size &&
                family.backward_in_turn(arguments_of(op, tables_of, true));
    });
  const bool summed = !alone && (!call.deterministic || in_turn);
  const bool in_parts = summed && !call.deterministic && head_parts > 1;
  if (summed) sums_q.clear(on.stream);
  if (in_turn)
    RINGSIDE_CUDA(cudaMemsetAsync(on.workspace + turns_in_place, 0, home_q.cells * sizeof(unsigned),
                                  on.stream));
  if (in_parts) sums_k.clear(on.stream), sums_v.clear(on.stream);
  for_each_launch(*this, backward, [&](const Operation& op, const OperationTables& tables_of) {
    RINGSIDE_CUDA(family.backward(arguments_of(op, tables_of, in_turn), on.stream));
  });
  if (summed) move::unshard(q_rows, sums_q.floats(), call.dq, on.stream);
  if (in_parts) {
    const move::RowMap k_rows = row_map(members[0].kv);
    move::unshard(k_rows, sums_k.floats(), call.dk, on.stream);
    move::unshard(k_rows, sums_v.floats(), call.dv, on.stream);
  }
  clear_unseen(*this, call, !in_parts, !summed, on.stream);
}

}  // namespace ringside
