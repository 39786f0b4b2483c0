#include "optimized/program/program.h"

#include <algorithm>

#include "optimized/program/choose_family.h"
#include "optimized/program/fill_length_tables.h"
#include "optimized/program/parts.h"
#include "optimized/tables/length_lists.h"

namespace ringside {
namespace {

constexpr int kGapRows = 8;

BufferOffsets place_each(Arena& arena, const std::vector<Residency>& residencies,
                         int64_t bytes_of_cell) {
  BufferOffsets offsets;
  for (const Residency& residency : residencies)
    offsets.push_back(arena.take(residency.stack.cells * bytes_of_cell));
  return offsets;
}

// Two buffers in turn, for what is needed until the next exchange only.
BufferOffsets place_in_turn(Arena& arena, const std::vector<Residency>& residencies,
                            int64_t bytes_of_cell) {
  int64_t cells = 0;
  for (const Residency& residency : residencies) cells = std::max(cells, residency.stack.cells);
  const size_t buffers = std::min<size_t>(residencies.size(), 2);
  BufferOffsets offsets;
  for (size_t i = 0; i < residencies.size(); ++i)
    offsets.push_back(i < buffers ? arena.take(cells * bytes_of_cell) : offsets[i - 2]);
  return offsets;
}

}  // namespace

template <typename Source>
ProgramParts::ProgramParts(const Source& source, int group_size, const ProgramOptions& o)
    : options(o),
      shape{.group_size = group_size,
            .head_dim_qk = o.head_dim_qk,
            .head_dim_v = o.head_dim_v,
            .softmax_scale = o.softmax_scale,
            .type = o.type},
      family(choose_family(shape, device, o.score_options)),
      tables(source,
             {family.forward_rows(shape), family.backward_query_rows(shape),
              family.backward_key_rows(shape)},
             o.poison == Poison::on ? kGapRows : 0),
      in_place(family.final_results && (!o.sinks || family.final_sinks(shape)) &&
               tables.rows_stay && tables.q.size() == 1 && tables.kv.size() == 1 &&
               tables.steps.size() == 1 && shape.head_dim_qk == o.head_dim_qk &&
               shape.head_dim_v == o.head_dim_v),
      // Moves of results from rank to rank know rows only.
      layout(family.tiled_results && !in_place && tables.q.size() == 1 &&
                     tables.q[0].stack.matrices.size() == 1
                 ? AccumulatorLayout::tiles
                 : AccumulatorLayout::rows) {
  if (in_place)
    place_buffers_in_place();
  else
    place_buffers();
  forward.of_family = forward.arena.take(most_bytes(family.forward_workspace_bytes, shapes()));
  backward.of_family = backward.arena.take(most_bytes(family.backward_workspace_bytes, shapes()));
}

std::vector<AttentionShape> ProgramParts::shapes() const {
  std::vector<AttentionShape> all;
  for (const StepTables& step : tables.steps)
    for (const Launch& launch : step.launches) all.push_back(shape_of(launch));
  return all;
}

void ProgramParts::require_rows(const ForwardCall& call) const {
  require_rows_of(rows_q(), {{&call.q, "q"}, {&call.out, "out"}, {&call.lse, "lse"}});
  require_rows_of(rows_k(), {{&call.k, "k"}, {&call.v, "v"}});
}

void ProgramParts::require_rows(const BackwardCall& call) const {
  require_rows_of(rows_q(), {{&call.q, "q"}, {&call.out, "out"}, {&call.lse, "lse"}});
  require_rows_of(rows_q(), {{&call.dout, "dout"}, {&call.dq, "dq"}});
  require_rows_of(rows_k(), {{&call.k, "k"}, {&call.v, "v"}, {&call.dk, "dk"}, {&call.dv, "dv"}});
}

void ProgramParts::place_buffers() {
  const int64_t element = move::bytes_of(shape.type);
  const int64_t qk = shape.head_dim_qk, v = shape.head_dim_v, f32 = sizeof(float);
  forward.q = place_in_turn(forward.arena, tables.q, qk * element);
  forward.k = place_in_turn(forward.arena, tables.kv, qk * element);
  forward.v = place_in_turn(forward.arena, tables.kv, v * element);
  for (const Residency& residency : tables.q)
    forward.out.push_back(forward.arena.take(cells_of_results(residency.stack) * v * f32));
  forward.lse = place_each(forward.arena, tables.q, f32);

  backward.q = place_each(backward.arena, tables.q, qk * element);
  backward.dout = place_each(backward.arena, tables.q, v * element);
  backward.lse = place_each(backward.arena, tables.q, f32);
  backward.delta = place_each(backward.arena, tables.q, f32);
  backward.dq = place_in_turn(backward.arena, tables.q, qk * f32);
  backward.k = place_each(backward.arena, tables.kv, qk * element);
  backward.v = place_each(backward.arena, tables.kv, v * element);
  backward.dk = place_in_turn(backward.arena, tables.kv, qk * f32);
  backward.dv = place_in_turn(backward.arena, tables.kv, v * f32);
}

void ProgramParts::place_buffers_in_place() {
  const int64_t f32 = sizeof(float);
  backward.lse = place_each(backward.arena, tables.q, f32);
  backward.delta = place_each(backward.arena, tables.q, f32);
  if (!keys_in_one_item())
    backward.dq = place_each(backward.arena, tables.q, shape.head_dim_qk * f32);
}

CudaProgram::CudaProgram(const Plan& plan, const ProgramOptions& options)
    : parts_(std::make_unique<ProgramParts>(plan, plan.problem.group_size(),
                                            require_head_dims(options))) {}
CudaProgram::CudaProgram(const Capacity& capacity, const ProgramOptions& options)
    : parts_(std::make_unique<ProgramParts>(capacity,
                                            capacity.num_heads / std::max(1, capacity.num_kv_heads),
                                            require_head_dims(options))) {}
CudaProgram::~CudaProgram() = default;

int CudaProgram::device() const { return parts_->device; }
const char* CudaProgram::family() const { return parts_->family.name; }
void CudaProgram::set_lengths(const DeviceLayout& q, const DeviceLayout& k,
                              cudaStream_t stream) const {
  parts_->require_current();
  require_room(parts_->tables.lengths, q, k);
  fill_length_tables(parts_->tables.lengths, q, k, stream);
}

bool CudaProgram::lengths_fitted(cudaStream_t stream) const {
  parts_->require_current();
  return take_status(parts_->tables.lengths.status, stream);
}

bool CudaProgram::in_place() const { return parts_->in_place; }
int64_t CudaProgram::forward_bytes() const { return parts_->forward.arena.bytes(); }
int64_t CudaProgram::backward_bytes() const { return parts_->backward.arena.bytes(); }

}  // namespace ringside
