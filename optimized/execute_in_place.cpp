// One rank that owns every row in order: kernels work on the caller's arrays, and rows that they do
// not write are zeroed apart. Only lse, delta and, unless dq is deterministic, its sums pass
// through the workspace.
#include <cmath>

#include "optimized/execute_parts.h"

namespace ringside {
namespace {

// As the work list counts rows: the stack of home buffers may begin with a gap.
DeviceMatrix as_home(const move::GlobalArray& x, const RankStack& home) {
  DeviceMatrix matrix = x.matrix;
  const int64_t gap = home.of_rank[0].row * matrix.row_stride * move::bytes_of(x.type);
  matrix.data = static_cast<std::byte*>(matrix.data) - gap;
  return matrix;
}

void check_aligned(const move::GlobalArray& x, const char* name) {
  const int64_t element = move::bytes_of(x.type);
  require(reinterpret_cast<uintptr_t>(x.matrix.data) % 16 == 0 &&
              x.matrix.row_stride * element % 16 == 0 && x.matrix.head_stride * element % 16 == 0,
          name, " has rows or heads that do not begin at multiples of 16 bytes. Copy it");
}

}  // namespace

void CudaProgram::Parts::forward_in_place(const ForwardCall& call, cudaStream_t stream) const {
  require(call.sinks == nullptr, "sinks, which the program was not made for");
  check_aligned(call.q, "q"), check_aligned(call.k, "k"), check_aligned(call.v, "v");
  check_aligned(call.out, "out");
  const Run run(tables, options, call.workspace, forward.arena.bytes(), stream);
  const RankStack &q = tables.q[0].stack, &kv = tables.kv[0].stack;
  float* lse = run.floats(forward.lse[0]);
  move::fill(lse, q.cells, -INFINITY, stream);
  if (call.max_logit != nullptr)
    move::start_max_logit(call.max_logit, tables.problem.num_heads, stream);
  for (const Launch& launch : tables.steps[0].launches)
    RINGSIDE_CUDA(family.forward({.shape = shape_of(launch),
                                  .q = as_home(call.q, q),
                                  .k = as_home(call.k, kv),
                                  .v = as_home(call.v, kv),
                                  .out = as_home(call.out, q),
                                  .lse = lse,
                                  .work = tables.work_list(launch.forward),
                                  .options = call.options,
                                  .max_logit = reinterpret_cast<int32_t*>(call.max_logit),
                                  .is_final = true},
                                 stream));
  if (call.max_logit != nullptr)
    move::finish_max_logit(call.max_logit, tables.problem.num_heads, stream);
  const move::RowMap rows = tables.row_map(tables.q_rows);
  move::clear_unseen(tables.unseen_rows(), move::RowsOf::queries, call.out,
                     rows.home_of_global.size, stream);
  move::unshard(rows, lse, call.lse, -INFINITY, stream);
}

void CudaProgram::Parts::backward_in_place(const BackwardCall& call, cudaStream_t stream) const {
  require(call.sinks == nullptr, "sinks, which the program was not made for");
  check_aligned(call.q, "q"), check_aligned(call.k, "k"), check_aligned(call.v, "v");
  check_aligned(call.dout, "dout"), check_aligned(call.dq, "dq");
  check_aligned(call.dk, "dk"), check_aligned(call.dv, "dv");
  const Run run(tables, options, call.workspace, backward.arena.bytes(), stream);
  const RankStack &q = tables.q[0].stack, &kv = tables.kv[0].stack;
  const move::RowMap q_rows = tables.row_map(tables.q_rows);
  float *lse = run.floats(backward.lse[0]), *delta = run.floats(backward.delta[0]);
  move::shard(q_rows, call.lse, lse, ElementType::float32, stream);
  move::delta(q_rows, call.dout, call.out, delta, stream);

  const int64_t width = int64_t{shape.head_dim_qk} * tables.problem.num_heads;
  DeviceMatrix dq = as_home(call.dq, q);
  if (!call.deterministic) {  // summed in float32
    run.zero(backward.dq[0], q.cells * shape.head_dim_qk * int64_t{sizeof(float)});
    dq = {run.at(backward.dq[0]), width, shape.head_dim_qk};
  }
  for (const Launch& launch : tables.steps[0].launches)
    RINGSIDE_CUDA(family.backward({.shape = shape_of(launch),
                                   .q = as_home(call.q, q),
                                   .k = as_home(call.k, kv),
                                   .v = as_home(call.v, kv),
                                   .dout = as_home(call.dout, q),
                                   .lse = lse,
                                   .delta = delta,
                                   .dq = dq,
                                   .dk = as_home(call.dk, kv),
                                   .dv = as_home(call.dv, kv),
                                   .queries = tables.work_list(launch.backward_queries),
                                   .keys = tables.work_list(launch.backward_keys),
                                   .deterministic = call.deterministic,
                                   .options = call.options,
                                   .is_final = true},
                                  stream));
  const UnseenRows unseen = tables.unseen_rows();
  const int rows_k = tables.row_map(tables.kv_rows).home_of_global.size;
  move::clear_unseen(unseen, move::RowsOf::keys, call.dk, rows_k, stream);
  move::clear_unseen(unseen, move::RowsOf::keys, call.dv, rows_k, stream);
  if (call.deterministic)
    move::clear_unseen(unseen, move::RowsOf::queries, call.dq, q_rows.home_of_global.size, stream);
  else
    move::unshard(q_rows, run.floats(backward.dq[0]), call.dq, 0, stream);
}

}  // namespace ringside
