// The backward kernel, compiled without score options and with all of them, a file each.
#pragma once

#include "optimized/attention/hopper/backward/backward_consume.cuh"
#include "optimized/attention/hopper/backward/backward_produce.cuh"
#include "optimized/attention/launch.cuh"

namespace ringside::hopper::backward_detail {

template <typename T, Dq kDq, bool kOptions>
__global__ void __launch_bounds__(kThreads, 1)
    attention_backward(const __grid_constant__ ParametersOf<kOptions> parameters) {
  extern __shared__ __align__(1024) uint8_t any_shared[];
  SharedOf<kOptions>& shared = *reinterpret_cast<SharedOf<kOptions>*>(any_shared);
  if (threadIdx.x == 0) shared.barriers.init_all(kArriving<kDq>);
  __syncthreads();
  const int role = threadIdx.x / kGroupThreads;
  if (role == 0) {
    give_registers<kProducerRegisters>();
    const int warp = threadIdx.x / 32;
    if (warp == 0) write_notes(parameters, shared);
    if (warp == 1) load_rows<kArriving<kDq>, kOptions>(parameters, shared);
    if (warp == 2 && threadIdx.x % 32 == 0) load_tiles(parameters, shared);
    if (kDq != Dq::none && warp == 3 && threadIdx.x % 32 == 0)
      send_results<kDq>(parameters, shared);
  } else {
    take_registers<kConsumerRegisters>();
    // All warps of a group agree on its number, which the compiler must see.
    const int group = static_cast<int>(__reduce_or_sync(~0u, role - 1));
    Consumer<T, kDq, kOptions>{parameters, shared, group}.run();
  }
}

template <typename T, bool kOptions>
cudaError_t launch(const ParametersOf<kOptions>& parameters, Dq dq, dim3 grid,
                   cudaStream_t stream) {
  const auto run = [&](auto kernel) {
    return launch_with_shared(kernel, grid, kThreads, sizeof(SharedOf<kOptions>), stream,
                              parameters);
  };
  if (dq == Dq::none) return run(attention_backward<T, Dq::none, kOptions>);
  if (dq == Dq::add) return run(attention_backward<T, Dq::add, kOptions>);
  return run(attention_backward<T, Dq::store, kOptions>);
}

template <bool kOptions>
cudaError_t launch(const ParametersOf<kOptions>& parameters, Dq dq, dim3 grid,
                   cudaStream_t stream) {
  return parameters.shape.type == ElementType::float16
             ? launch<__half, kOptions>(parameters, dq, grid, stream)
             : launch<__nv_bfloat16, kOptions>(parameters, dq, grid, stream);
}

cudaError_t launch_with_options(const OptionParameters& parameters, Dq dq, dim3 grid,
                                cudaStream_t stream);

}  // namespace ringside::hopper::backward_detail
