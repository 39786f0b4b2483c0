// The Hopper family in the table. What its kernels do not take goes to the mma family: both cut
// items of as many rows.
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/tensor_map.h"

namespace ringside {
namespace hopper {

bool supports(const AttentionShape& shape, const DeviceProperties& device) {
  const int qk = shape.head_dim_qk, v = shape.head_dim_v, larger = qk > v ? qk : v;
  const bool fits = qk > 0 && v > 0 && qk % 8 == 0 && v % 8 == 0 && larger > 64 && larger <= 128;
  return device.compute_capability == 90 && fits && shape.type != ElementType::float32 &&
         mma_family().forward_rows(shape) == forward_rows(shape) &&
         mma_family().backward_key_rows(shape) == backward_key_rows(shape) && driver_makes_maps();
}

}  // namespace hopper

namespace {

cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream) {
  if (!hopper::takes(arguments))
    return arguments.sinks == nullptr && arguments.options.empty()
               ? mma_family().forward(arguments, stream)
               : cudaErrorInvalidValue;
  return hopper::forward(arguments, stream);
}

cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream) {
  if (!hopper::takes(arguments))
    return arguments.options.empty() ? mma_family().backward(arguments, stream)
                                     : cudaErrorInvalidValue;
  return hopper::backward(arguments, stream);
}

}  // namespace

KernelFamily hopper_family() {
  KernelFamily family = mma_family();
  family.name = "hopper";
  family.supports = hopper::supports;
  family.forward_rows = hopper::forward_rows;
  family.score_options = family.final_sinks = true;
  family.forward = forward;
  family.backward = backward;
  family.forward_workspace_bytes = hopper::forward_workspace_bytes;
  family.backward_workspace_bytes = hopper::backward_workspace_bytes;
  return family;
}

}  // namespace ringside
