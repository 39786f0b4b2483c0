// What forward() and backward() of a CudaProgram share: where buffers lie, and one call's moves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "optimized/device/error.h"
#include "optimized/device/properties.h"
#include "optimized/program/tables.h"
#include "optimized/tables/accumulator_tiles.h"

namespace ringside {

// Where the buffers of one kind lie in the workspace: one for every residency.
using BufferOffsets = std::vector<int64_t>;

struct ForwardBuffers {
  Arena arena;
  int64_t of_family = 0;  // the kernels' own
  BufferOffsets q, k, v, out, lse;
};

struct BackwardBuffers {
  Arena arena;
  int64_t of_family = 0;
  BufferOffsets q, dout, lse, delta, dq;
  BufferOffsets k, v, dk, dv;
};

// The most that any of some launches needs of its own; they share it.
inline int64_t most_bytes(KernelFamily::BytesOfShape of_shape,
                          const std::vector<AttentionShape>& shapes) {
  int64_t most = 0;
  if (of_shape != nullptr)
    for (const AttentionShape& shape : shapes) most = std::max(most, of_shape(shape));
  return most;
}

// A matrix of a stack of buffers that begins at `cells`.
inline DeviceMatrix matrix_of(std::byte* cells, const RankStack& stack, int index, int dim,
                              int bytes_of_element) {
  const RankStack::Matrix& m = stack.matrices[index];
  return {cells + m.cell * dim * bytes_of_element, int64_t{m.heads.size()} * dim, dim, m.rows};
}

struct NamedArray {
  const move::GlobalArray* array;
  const char* name;
};
inline void require_rows_of(int rows, std::initializer_list<NamedArray> arrays) {
  for (const auto& [array, name] : arrays)
    require(array->matrix.rows == rows, name, " has ", array->matrix.rows,
            " rows; the plan expects ", rows, ". Pass the whole array, padding included");
}

struct ProgramParts {
  int device = current_device();
  ProgramOptions options;
  AttentionShape shape;  // head numbers are those of the launch
  KernelFamily family;
  ProgramTables tables;
  bool in_place;             // kernels work on the caller's arrays
  AccumulatorLayout layout;  // of results at home
  ForwardBuffers forward;
  BackwardBuffers backward;

  // `source` is a Plan or a Capacity.
  template <typename Source>
  ProgramParts(const Source& source, int group_size, const ProgramOptions& o);

  void require_current() const { require_made_on(current_device(), device, "program"); }
  // Of one call's arrays.
  void require_rows(const ForwardCall& call) const;
  void require_rows(const BackwardCall& call) const;

  void forward_in_place(const ForwardCall& call, cudaStream_t stream) const;
  void backward_in_place(const BackwardCall& call, cudaStream_t stream) const;

  // Whether each query meets one item of keys, so that nothing is summed up in dq.
  bool keys_in_one_item() const {
    return std::ranges::all_of(tables.steps[0].launches, &Launch::keys_in_one_item);
  }

  int64_t cells_of_results(const RankStack& stack) const {
    return layout == AccumulatorLayout::tiles
               ? rows_of_tiles(stack.matrices[0].rows) * stack.matrices[0].heads.size()
               : stack.cells;
  }

  AttentionShape shape_of(const Launch& launch) const {
    AttentionShape s = shape;
    s.num_heads = launch.q_heads.size();
    s.num_kv_heads = launch.kv_heads.size();
    s.first_head = launch.q_heads.begin;
    s.first_kv_head = launch.kv_heads.begin;
    return s;
  }

  // The caller's arrays with the columns that home buffers have.
  ForwardCall at_home(ForwardCall call) const {
    for (move::GlobalArray* x : {&call.q, &call.k}) x->home_dim = shape.head_dim_qk;
    for (move::GlobalArray* x : {&call.v, &call.out}) x->home_dim = shape.head_dim_v;
    return call;
  }
  BackwardCall at_home(BackwardCall call) const {
    for (move::GlobalArray* x : {&call.q, &call.k, &call.dq, &call.dk})
      x->home_dim = shape.head_dim_qk;
    for (move::GlobalArray* x : {&call.v, &call.dv, &call.dout}) x->home_dim = shape.head_dim_v;
    return call;
  }

 private:
  int rows_q() const { return tables.q_rows.home_of_global.size; }  // of the caller's arrays
  int rows_k() const { return tables.kv_rows.home_of_global.size; }
  std::vector<AttentionShape> shapes() const;  // of all launches
  void place_buffers();
  void place_buffers_in_place();
};

// One call: the program's tables, the caller's workspace and stream.
class CallWorkspace {
 public:
  CallWorkspace(const ProgramTables& tables, const ProgramOptions& options, void* workspace,
                int64_t bytes, cudaStream_t stream)
      : tables_(tables),
        poison_(options.poison),
        workspace_(static_cast<std::byte*>(workspace)),
        stream_(stream) {
    require(workspace != nullptr || bytes == 0, "workspace is null; expected ", bytes, " bytes");
    poison(0, bytes);
  }

  cudaStream_t stream() const { return stream_; }
  void* at(int64_t offset) const { return workspace_ + offset; }
  float* floats(int64_t offset) const { return reinterpret_cast<float*>(workspace_ + offset); }

  // NaN in every type.
  void poison(int64_t offset, int64_t bytes) const {
    if (poison_ == Poison::on && bytes > 0)
      RINGSIDE_CUDA(cudaMemsetAsync(at(offset), 0xff, static_cast<size_t>(bytes), stream_));
  }

  void zero(int64_t offset, int64_t bytes) const {
    if (bytes > 0)
      RINGSIDE_CUDA(cudaMemsetAsync(at(offset), 0, static_cast<size_t>(bytes), stream_));
  }

  // Brings what lies at some offsets from the residency before.
  void carry(const BufferOffsets& offsets, const std::vector<Residency>& residencies, int residency,
             int bytes_of_cell) const {
    poison(offsets[residency], residencies[residency].stack.cells * bytes_of_cell);
    const Residency& to = residencies[residency];
    move::copy(tables_.blocks(to, to.carry), at(offsets[residency - 1]), at(offsets[residency]),
               bytes_of_cell, stream_);
  }

  // Sums gradients of `residency` into those of the residency before.
  void carry_back(const BufferOffsets& offsets, const std::vector<Residency>& residencies,
                  int residency, int dim) const {
    zero(offsets[residency - 1],
         residencies[residency - 1].stack.cells * dim * int64_t{sizeof(float)});
    add_back(offsets, residencies, residency, dim);
  }
  void add_back(const BufferOffsets& offsets, const std::vector<Residency>& residencies,
                int residency, int dim) const {
    const Residency& from = residencies[residency];
    for (const auto& round : from.carry_back)
      move::add(tables_.blocks(from, round), floats(offsets[residency]),
                floats(offsets[residency - 1]), dim, stream_);
  }

  // A matrix of a stack.
  DeviceMatrix matrix(int64_t offset, const RankStack& stack, int index, int dim,
                      int bytes_of_element) const {
    return matrix_of(workspace_ + offset, stack, index, dim, bytes_of_element);
  }
  float* cells(int64_t offset, const RankStack& stack, int index) const {
    return floats(offset) + stack.matrices[index].cell;
  }

 private:
  const ProgramTables& tables_;
  Poison poison_;
  std::byte* workspace_;
  cudaStream_t stream_;
};

}  // namespace ringside
