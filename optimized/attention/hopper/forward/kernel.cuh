// The forward kernel itself; an instance for each pair of head dimensions, and for the score
// options that it knows, is a file of its own.
//
// A block of threads stays on its multiprocessor and takes items (128 query rows of a segment, one
// head) from a queue. Two warps produce, by turns: they walk over the blocks of keys that an item
// sees, across all segments, and have the copy engine bring them; a third warp brings their values,
// and a fourth looks whether they are finite, where that matters. Two groups of four warps
// consume, 64 rows each: scores = Q K^T, online softmax in powers of two, output += P V with P from
// registers. LADDER.md says what each idea brought.
#pragma once

#include "optimized/attention/dropped.h"
#include "optimized/attention/hopper/forward/consumer.cuh"
#include "optimized/attention/hopper/forward/launch.h"
#include "optimized/attention/hopper/forward/producer.cuh"
#include "optimized/attention/launch.cuh"

namespace ringside::hopper {

template <typename Shape>
__device__ void init_barriers(ForwardShared<Shape>& s) {
  constexpr int kArrivalsOfGroup = kWarpsOfGroup * kArrivalsOfWarp;
  for (int stage = 0; stage < Shape::kStages; ++stage) {
    init(s.k_full[stage], kArrivalsOfWarp), init(s.v_full[stage], kArrivalsOfWarp);
    init(s.v_landed[stage], 1);
    init(s.k_empty[stage], kGroups * kArrivalsOfGroup);
    init(s.v_empty[stage], kGroups * kArrivalsOfGroup);
  }
  for (int stage = 0; stage < Shape::kItemStages; ++stage)
    for (int group = 0; group < kGroups; ++group)
      init(s.q_full[stage][group], 1), init(s.q_empty[stage][group], kArrivalsOfGroup);
  for (Barrier& barrier : s.turn_full) init(barrier, kArrivalsOfWarp);
  for (int task = 0; task < Shape::kValueTasks; ++task)
    init(s.value_task_full[task], 1), init(s.value_task_empty[task], 1 + kArrivalsOfWarp);
  s.turn = {};
  publish_barriers();
}

template <typename T, typename Shape, Options kOptions>
__global__ void __launch_bounds__(kThreads, 1)
    attention_forward(const __grid_constant__ Parameters<kOptions> parameters) {
  extern __shared__ __align__(1024) uint8_t any_shared[];  // as swizzled tiles must lie
  static_assert(sizeof(Shared<Shape, kOptions>) <= 227 << 10);
  Shared<Shape, kOptions>& shared = *reinterpret_cast<Shared<Shape, kOptions>*>(any_shared);
  if (threadIdx.x == 0) init_barriers(shared);
  __syncthreads();
  // Of a whole warp, as the compiler is to know: descriptors then lie in its registers.
  const int role = static_cast<int>(__reduce_or_sync(~0u, threadIdx.x / kThreadsOfGroup));
  if (role == 0) {
    give_registers<kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp < kProducers)
      Producer<Shape, kOptions>(parameters, shared).run();
    else if (warp == kProducers + 1)
      inspect_values<T, Shape>(parameters, shared);
    else if (threadIdx.x % 32 == 0)
      load_values(parameters, shared);
  } else {
    take_registers<kConsumerRegisters>();
    Consumer<T, Shape, kOptions>(parameters, shared, role - 1).run();
  }
}

template <typename Dims, Options kOptions>
cudaError_t launch_forward(const Parameters<kOptions>& parameters, dim3 grid, cudaStream_t stream) {
  using Shape = ForwardShape<Dims>;
  static_assert(kDroppedKeys % Shape::kKeys == 0);
  return launch_with_shared(parameters.shape.type == ElementType::float16
                                ? attention_forward<__half, Shape, kOptions>
                                : attention_forward<__nv_bfloat16, Shape, kOptions>,
                            grid, kThreads, sizeof(Shared<Shape, kOptions>), stream, parameters);
}

}  // namespace ringside::hopper
