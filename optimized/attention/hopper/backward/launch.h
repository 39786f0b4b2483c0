// The instances of the backward kernel, as the host sees them.
#pragma once

#include "optimized/attention/hopper/backward/shared/blocks.cuh"

namespace ringside::hopper::backward_detail {

// Of softcap alone, what is rare (dq by another kernel, dq in rows) is left to the instance of all
// options: each takes as long to compile as a kernel without options.
constexpr bool has_instance(Options options, Dq dq) {
  return options != Options::softcap || dq == Dq::add_fragments || dq == Dq::store;
}

template <typename Dims, Options kOptions>
cudaError_t launch_backward(const ParametersOf<kOptions>& parameters, Dq dq, dim3 grid,
                            cudaStream_t stream);

}  // namespace ringside::hopper::backward_detail
