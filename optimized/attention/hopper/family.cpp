// The Hopper family in the table. What its kernels do not take goes to the mma family, which takes
// items of as many rows, and of fewer.
#include "optimized/attention/hopper/head_dims.h"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/box.h"
#include "optimized/attention/hopper/machine/tensor_map.h"

namespace ringside {
namespace hopper {

bool knows_options(const AttentionShape& shape) { return fits_in<OptionDims>(shape); }

bool supports(const AttentionShape& shape, const DeviceProperties& device) {
  return device.compute_capability == 90 && mma_family().supports(shape, device) &&
         mma_family().forward_rows(shape) == forward_rows(shape) &&
         mma_family().backward_key_rows(shape) >= backward_key_rows(shape) && driver_makes_maps();
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
    return arguments.options.empty() && arguments.carried.data == nullptr &&
                   arguments.turns == nullptr && arguments.first_stored == nullptr &&
                   arguments.dq_layout == AccumulatorLayout::rows
               ? mma_family().backward(arguments, stream)
               : cudaErrorInvalidValue;
  return hopper::backward(arguments, stream);
}

}  // namespace

KernelFamily hopper_family() {
  KernelFamily family = mma_family();
  family.name = "hopper";
  family.supports = hopper::supports;
  family.forward_rows = hopper::forward_rows;
  family.backward_key_rows = hopper::backward_key_rows;
  family.backward_whole_key_rows = hopper::backward_whole_key_rows;
  family.backward_head_parts = hopper::backward_head_parts;
  family.heads_at_a_time = hopper::kHeadsAtATime;
  family.backward_in_turn = [](const BackwardArguments& arguments) {
    return hopper::takes(arguments) && hopper::takes_turns(arguments.shape);
  };
  family.backward_first_stores = hopper::first_may_store;
  family.backward_in_fragments = hopper::in_fragments;
  family.rounds_in_turn = hopper::rounds_in_turn;
  family.takes_array = [](const DeviceMatrix& matrix, ElementType type, int heads) {
    return hopper::fits_a_map(matrix, {.type = type, .heads = heads});
  };
  family.most_rows = hopper::kRaggedRows;
  family.score_options = hopper::knows_options;
  family.final_sinks = KernelFamily::always;
  family.forward = forward;
  family.by_document = true;
  family.backward = backward;
  family.forward_workspace_bytes = hopper::forward_workspace_bytes;
  family.backward_workspace_bytes = hopper::backward_workspace_bytes;
  return family;
}

}  // namespace ringside
