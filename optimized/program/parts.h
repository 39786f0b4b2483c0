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

// Buffers of one kind, one for every epoch: places in the workspace.
using Places = std::vector<int64_t>;

struct ForwardPlaces {
  Arena arena;
  int64_t of_family = 0;  // the kernels' own
  Places q, k, v, out, lse;
};

struct BackwardPlaces {
  Arena arena;
  int64_t of_family = 0;
  Places q, dout, lse, delta, dq;
  Places k, v, dk, dv;
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

// The caller's array of the home rows of one rank that owns all, in order. As the work list counts
// rows: the stack may begin with a gap, which belongs to nobody and is not touched.
inline DeviceMatrix as_home(const move::GlobalArray& x, const RankStack& home) {
  DeviceMatrix matrix = x.matrix;
  const int64_t gap = home.of_rank[0].row;
  matrix.data =
      static_cast<std::byte*>(matrix.data) - gap * matrix.row_stride * move::bytes_of(x.type);
  matrix.rows += gap;
  return matrix;
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

struct CudaProgram::Parts {
  int device = current_device();
  ProgramOptions options;
  AttentionShape shape;  // head numbers are those of the launch
  KernelFamily family;
  ProgramTables tables;
  bool in_place;             // kernels work on the caller's arrays
  AccumulatorLayout layout;  // of results at home
  ForwardPlaces forward;
  BackwardPlaces backward;

  // `source` is a Plan or a Capacity.
  template <typename Source>
  Parts(const Source& source, int group_size, const ProgramOptions& o);

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
class Run {
 public:
  Run(const ProgramTables& tables, const ProgramOptions& options, void* workspace, int64_t bytes,
      cudaStream_t stream)
      : t(tables),
        poison_(options.poison),
        workspace_(static_cast<std::byte*>(workspace)),
        stream_(stream) {
    require(workspace != nullptr || bytes == 0, "workspace is null; expected ", bytes, " bytes");
    poison(0, bytes);
  }

  cudaStream_t stream() const { return stream_; }
  void* at(int64_t place) const { return workspace_ + place; }
  float* floats(int64_t place) const { return reinterpret_cast<float*>(workspace_ + place); }

  // NaN in every type.
  void poison(int64_t place, int64_t bytes) const {
    if (poison_ == Poison::on && bytes > 0)
      RINGSIDE_CUDA(cudaMemsetAsync(at(place), 0xff, static_cast<size_t>(bytes), stream_));
  }

  void zero(int64_t place, int64_t bytes) const {
    if (bytes > 0)
      RINGSIDE_CUDA(cudaMemsetAsync(at(place), 0, static_cast<size_t>(bytes), stream_));
  }

  // Brings `places` from epoch-1 to epoch.
  void carry(const Places& places, const std::vector<Epoch>& epochs, int epoch,
             int bytes_of_cell) const {
    poison(places[epoch], epochs[epoch].stack.cells * bytes_of_cell);
    move::copy(t.span(epochs[epoch].carry), at(places[epoch - 1]), at(places[epoch]), bytes_of_cell,
               stream_);
  }

  // Sums gradients of `epoch` into those of the epoch before.
  void carry_back(const Places& places, const std::vector<Epoch>& epochs, int epoch,
                  int dim) const {
    zero(places[epoch - 1], epochs[epoch - 1].stack.cells * dim * int64_t{sizeof(float)});
    add_back(places, epochs, epoch, dim);
  }
  void add_back(const Places& places, const std::vector<Epoch>& epochs, int epoch, int dim) const {
    for (const auto& round : epochs[epoch].carry_back)
      move::add(t.span(round), floats(places[epoch]), floats(places[epoch - 1]), dim, stream_);
  }

  // A matrix of a stack.
  DeviceMatrix matrix(int64_t place, const RankStack& stack, int index, int dim,
                      int bytes_of_element) const {
    return matrix_of(workspace_ + place, stack, index, dim, bytes_of_element);
  }
  float* cells(int64_t place, const RankStack& stack, int index) const {
    return floats(place) + stack.matrices[index].cell;
  }

  const ProgramTables& t;

 private:
  Poison poison_;
  std::byte* workspace_;
  cudaStream_t stream_;
};

}  // namespace ringside
