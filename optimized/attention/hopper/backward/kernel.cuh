// The backward kernel itself; an instance for each pair of head dimensions, and those with score
// options, are a file each.
#pragma once

#include <type_traits>

#include "optimized/attention/hopper/backward/consume/ahead.cuh"
#include "optimized/attention/hopper/backward/consume/consumer.cuh"
#include "optimized/attention/hopper/backward/consume/halves.cuh"
#include "optimized/attention/hopper/backward/consume/split.cuh"
#include "optimized/attention/hopper/backward/launch.h"
#include "optimized/attention/hopper/backward/produce/notes.cuh"
#include "optimized/attention/hopper/backward/produce/rows.cuh"
#include "optimized/attention/hopper/backward/produce/split_tiles.cuh"
#include "optimized/attention/hopper/backward/produce/tiles.cuh"
#include "optimized/attention/hopper/backward/send/results.cuh"
#include "optimized/attention/hopper/backward/send/rounds.cuh"
#include "optimized/attention/launch.cuh"

namespace ringside::hopper::backward_detail {

template <typename T, typename Shape, Dq kDq, Options kOptions>
__global__ void __launch_bounds__(kThreads, 1)
    attention_backward(const __grid_constant__ ParametersOf<kOptions> parameters) {
  extern __shared__ __align__(1024) uint8_t any_shared[];
  static_assert(sizeof(SharedOf<Shape, kOptions>) <= 227 << 10);
  SharedOf<Shape, kOptions>& shared = *reinterpret_cast<SharedOf<Shape, kOptions>*>(any_shared);
  if (threadIdx.x == 0) {
    for (auto& of_part : shared.keys_found)
      for (int& found : of_part) found = 0;
    if constexpr (Shape::kSplit)
      shared.barriers.init_all();
    else
      shared.barriers.init_all(Shape::kTakesTurns && kDq != Dq::none && sends_keys(parameters));
  }
  __syncthreads();
  const int role = threadIdx.x / kGroupThreads;
  if (role == 0) {
    give_registers<kProducerRegisters>();
    const int warp = threadIdx.x / 32;
    if (warp == 0) write_notes<Shape, kDq>(parameters, shared);
    if (warp == 1) load_rows<Shape, kOptions>(parameters, shared);
    if (warp == 2 && threadIdx.x % 32 == 0) load_tiles<kDq>(parameters, shared);
    if constexpr (kDq != Dq::none)
      if (warp == 3 && threadIdx.x % 32 == 0) {
        if constexpr (Shape::kTakesTurns)
          send_results<kDq>(parameters, shared);
        else if (kDq == Dq::add && parameters.first_stored != nullptr)
          RoundSender<kDq, Shape, kDq == Dq::add>(parameters, shared).run();
        else
          RoundSender<kDq, Shape, false>(parameters, shared).run();
      }
  } else {
    take_registers<kConsumerRegisters>();
    // All warps of a group agree on its number, which the compiler must see.
    const int group = static_cast<int>(__reduce_or_sync(~0u, role - 1));
    if constexpr (Shape::kInHalves)
      HalvesConsumer<T, Shape, kDq>{{parameters, shared, group}}.run();
    else if constexpr (Shape::kAhead && kOptions == Options::none)
      AheadConsumer<T, Shape, kDq>{{parameters, shared, group}}.run();
    else if constexpr (!Shape::kSplit)
      Consumer<T, Shape, kDq, kOptions>{{parameters, shared, group}}.run();
    else if (group == 0)
      SplitConsumer<T, Shape, kDq, 0>{parameters, shared}.run();
    else
      SplitConsumer<T, Shape, kDq, 1>{parameters, shared}.run();
  }
}

template <typename T, typename Shape, Options kOptions>
cudaError_t launch_of_type(const ParametersOf<kOptions>& parameters, Dq dq, dim3 grid,
                           cudaStream_t stream) {
  const auto run = [&](auto kernel) {
    return launch_with_shared(kernel, grid, kThreads, sizeof(SharedOf<Shape, kOptions>), stream,
                              parameters);
  };
  if constexpr (has_instance(kOptions, Dq::none))
    if (dq == Dq::none) return run(attention_backward<T, Shape, Dq::none, kOptions>);
  if constexpr (has_instance(kOptions, Dq::add))
    if (dq == Dq::add) return run(attention_backward<T, Shape, Dq::add, kOptions>);
  if constexpr (Shape::kTakesTurns)
    if (dq == Dq::add_fragments)
      return run(attention_backward<T, Shape, Dq::add_fragments, kOptions>);
  return run(attention_backward<T, Shape, Dq::store, kOptions>);
}

template <typename Dims, Options kOptions>
cudaError_t launch_backward(const ParametersOf<kOptions>& parameters, Dq dq, dim3 grid,
                            cudaStream_t stream) {
  using Shape = BackwardShape<Dims>;
  static_assert(kOptions == Options::none || Shape::kTakesTurns);
  return parameters.shape.type == ElementType::float16
             ? launch_of_type<__half, Shape, kOptions>(parameters, dq, grid, stream)
             : launch_of_type<__nv_bfloat16, Shape, kOptions>(parameters, dq, grid, stream);
}

}  // namespace ringside::hopper::backward_detail
