// What forward() and backward() of a CudaProgram share: where buffers lie, and one call's moves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "optimized/device/error.h"
#include "optimized/program/tables.h"
#include "optimized/tables/accumulator_tiles.h"

namespace ringside {

// Buffers of one kind, one for every epoch: places in the workspace.
using Places = std::vector<int64_t>;

struct ForwardPlaces {
  Arena arena;
  Places q, k, v, out, lse;
};

struct BackwardPlaces {
  Arena arena;
  Places q, dout, lse, delta, dq;
  Places k, v, dk, dv;
};

struct CudaProgram::Parts {
  ProgramOptions options;
  AttentionShape shape;  // head numbers are those of the launch
  KernelFamily family;
  ProgramTables tables;
  bool in_place;      // kernels work on the caller's arrays
  bool out_in_tiles;  // results at home lie as accumulator_tiles.h says
  ForwardPlaces forward;
  BackwardPlaces backward;

  // `source` is a Plan or a Capacity.
  template <typename Source>
  Parts(const Source& source, int group_size, const ProgramOptions& o);

  void forward_in_place(const ForwardCall& call, cudaStream_t stream) const;
  void backward_in_place(const BackwardCall& call, cudaStream_t stream) const;

  // Whether each query meets one item of keys, so that nothing is summed up in dq.
  bool keys_in_one_item() const {
    return std::ranges::all_of(tables.steps[0].launches, &Launch::keys_in_one_item);
  }

  int64_t cells_of_results(const RankStack& stack) const {
    return out_in_tiles ? rows_of_tiles(stack.matrices[0].rows) * stack.matrices[0].heads.size()
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
    const auto& m = stack.matrices[index];
    return {workspace_ + place + m.cell * dim * bytes_of_element, int64_t{m.heads.size()} * dim,
            dim};
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
