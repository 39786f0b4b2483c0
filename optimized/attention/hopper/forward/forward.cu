// Attention forward for Hopper: bfloat16 and float16. What a launch is given; kernel.cuh has the
// kernel.
#include "optimized/attention/dropped.h"
#include "optimized/attention/hopper/forward/launch.h"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/device/processors.h"

namespace ringside::hopper {
namespace {

// Also of kernels for OptionDims.
int keys_of_block(const AttentionShape& shape) {
  static_assert(Tuning<OptionDims>::kKeys == Tuning<HeadDims<64, 64>>::kKeys);
  return with_head_dims(shape, [](auto dims) -> int { return Tuning<decltype(dims)>::kKeys; });
}

// Where the launch leaves final results, if it does.
const DeviceMatrix* final_results(const ForwardArguments& a) {
  if (a.accumulate == Accumulate::only) return &a.out;
  return a.final_out.data != nullptr ? &a.final_out : nullptr;
}

bool make_maps(ForwardMaps& maps, const ForwardArguments& a) {
  const AttentionShape& s = a.shape;
  const int keys = keys_of_block(s);
  const bool made = make_map(maps.q, a.q, {s.type, s.head_dim_qk, s.num_heads}) &&
                    make_map(maps.k, a.k, {s.type, s.head_dim_qk, s.num_kv_heads}, keys) &&
                    make_map(maps.v, a.v, {s.type, s.head_dim_v, s.num_kv_heads}, keys);
  const DeviceMatrix* out = final_results(a);
  return made && (out == nullptr ||
                  make_map(maps.out, *out, {s.type, s.head_dim_v, s.num_heads}, kRowsOfWarp));
}

ForwardParameters parameters_of(const ForwardArguments& a, const ForwardMaps& maps) {
  const AttentionShape& s = a.shape;
  const int64_t bytes_of_kv_head = a.k.rows * 2 * (s.head_dim_qk + s.head_dim_v);
  return {.maps = maps,
          .shape = s,
          .work = a.work,
          .order = {s.num_heads, heads_of_section(s.num_heads, s.group_size, bytes_of_kv_head)},
          .taken = static_cast<int32_t*>(a.workspace),
          .dropped = static_cast<int32_t*>(a.workspace) + 1,
          .out = a.out,
          .lse = a.lse,
          .out_in_tiles = a.layout == AccumulatorLayout::tiles,
          .flags = a.accumulate == Accumulate::only    ? kFinal
                   : a.accumulate == Accumulate::merge ? kResumes
                                                       : 0,
          .has_final = a.final_out.data != nullptr};
}

Options wanted(const ScoreNumbers& n, ElementType type) {
  if (n.drops) return n.in_logits ? Options::all : Options::dropout;
  if (n.softcap == 0) return Options::linear;
  if (!n.only_cap() || !n.far.holds()) return Options::all;
  return n.softcap <= most_low_softcap(type) ? Options::low_softcap : Options::softcap;
}

}  // namespace

bool has_options(const ForwardArguments& a) {
  return !a.options.empty() || a.sinks != nullptr || a.max_logit != nullptr ||
         !(a.shape.softmax_scale > 1e-30f);
}

int forward_rows(const AttentionShape&) { return kItemRows; }
int64_t forward_workspace_bytes(const AttentionShape&) { return 2 * sizeof(int32_t); }

bool takes(const ForwardArguments& a) {
  const AttentionShape& s = a.shape;
  const int64_t most_rows = kRaggedRows;
  const DeviceMatrix* out = final_results(a);
  const bool rows_fit = a.q.rows <= most_rows && a.k.rows <= most_rows && a.v.rows <= most_rows;
  return rows_fit && (knows_options(s) || a.options.empty()) &&
         int64_t{a.work.max_items} * s.num_heads < kMostEntries &&
         fits_a_map(a.q, {s.type, s.head_dim_qk, s.num_heads}) &&
         fits_a_map(a.k, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
         fits_a_map(a.v, {s.type, s.head_dim_v, s.num_kv_heads}) &&
         (out == nullptr || fits_a_map(*out, {s.type, s.head_dim_v, s.num_heads}));
}

cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream) {
  if (arguments.accumulate == Accumulate::only && arguments.final_out.data != nullptr)
    return cudaErrorInvalidValue;  // of two places
  const int64_t items = int64_t{arguments.work.max_items} * arguments.shape.num_heads;
  if (items == 0) return cudaSuccess;
  ForwardMaps maps{};
  if (!make_maps(maps, arguments)) return cudaErrorInvalidValue;
  const cudaError_t error =
      cudaMemsetAsync(arguments.workspace, 0, forward_workspace_bytes(arguments.shape), stream);
  if (error != cudaSuccess) return error;
  const dim3 grid(blocks_that_stay(items, arguments.sm_margin));
  const ForwardParameters parameters = parameters_of(arguments, maps);
  const auto launch = [&] {
    if (has_options(arguments)) {
      const OptionParameters with_options{
          parameters,
          score_numbers(arguments.shape, arguments.options, arguments.sinks, arguments.max_logit)};
      using Dims = OptionDims;
      switch (wanted(with_options.scores, arguments.shape.type)) {
        case Options::linear:
          return with_head_dims(arguments.shape, [&](auto dims) {
            return launch_forward<decltype(dims), Options::linear>(with_options, grid, stream);
          });
        case Options::softcap:
          return launch_forward<Dims, Options::softcap>(with_options, grid, stream);
        case Options::low_softcap:
          return launch_forward<Dims, Options::low_softcap>(with_options, grid, stream);
        case Options::dropout:
          return launch_forward<Dims, Options::dropout>(with_options, grid, stream);
        default:
          return launch_forward<Dims, Options::all>(with_options, grid, stream);
      }
    }
    return with_head_dims(arguments.shape, [&](auto dims) {
      return launch_forward<decltype(dims), Options::none>(parameters, grid, stream);
    });
  };
  const cudaError_t launched = launch();
  return launched != cudaSuccess ? launched : add_dropped(arguments, parameters.dropped, stream);
}

}  // namespace ringside::hopper
