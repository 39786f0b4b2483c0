// The forward kernel, compiled without score options and with all of them, a file each.
#pragma once

#include "optimized/attention/hopper/forward/consumer.cuh"
#include "optimized/attention/hopper/forward/producer.cuh"
#include "optimized/attention/launch.cuh"

namespace ringside::hopper {

__device__ inline void init_barriers(ForwardShared& s) {
  for (int stage = 0; stage < kStages; ++stage) {
    init(s.k_full[stage], 1), init(s.v_full[stage], 1), init(s.v_landed[stage], 1);
    init(s.k_empty[stage], kGroups * kWarpsOfGroup);
    init(s.v_empty[stage], kGroups * kWarpsOfGroup);
  }
  for (int stage = 0; stage < kItemStages; ++stage)
    for (int group = 0; group < kGroups; ++group)
      init(s.q_full[stage][group], 1), init(s.q_empty[stage][group], kWarpsOfGroup);
  for (Barrier& barrier : s.turn_full) init(barrier, 1);
  for (int task = 0; task < kValueTasks; ++task)
    init(s.value_task_full[task], 1), init(s.value_task_empty[task], 2);
  s.turn = {};
  publish_barriers();
}

template <typename T, bool kOptions>
__global__ void __launch_bounds__(kThreads, 1)
    attention_forward(const __grid_constant__ Parameters<kOptions> parameters) {
  extern __shared__ __align__(1024) uint8_t any_shared[];  // as swizzled tiles must lie
  Shared<kOptions>& shared = *reinterpret_cast<Shared<kOptions>*>(any_shared);
  if (threadIdx.x == 0) init_barriers(shared);
  __syncthreads();
  // Of a whole warp, as the compiler is to know: descriptors then lie in its registers.
  const int role = static_cast<int>(__reduce_or_sync(~0u, threadIdx.x / kThreadsOfGroup));
  if (role == 0) {
    give_registers<kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp < kProducers)
      Producer<kOptions>(parameters, shared).run();
    else if (warp == kProducers + 1)
      inspect_values<T>(parameters, shared);
    else if (threadIdx.x % 32 == 0)
      load_values(parameters, shared);
  } else {
    take_registers<kConsumerRegisters>();
    Consumer<T, kOptions>(parameters, shared, role - 1).run();
  }
}

template <bool kOptions>
cudaError_t launch_forward(const Parameters<kOptions>& parameters, dim3 grid, cudaStream_t stream) {
  return launch_with_shared(parameters.shape.type == ElementType::float16
                                ? attention_forward<__half, kOptions>
                                : attention_forward<__nv_bfloat16, kOptions>,
                            grid, kThreads, sizeof(Shared<kOptions>), stream, parameters);
}

cudaError_t launch_with_options(const OptionParameters& parameters, dim3 grid, cudaStream_t stream);

}  // namespace ringside::hopper
