// Attention forward for Hopper: bfloat16 and float16, head dimensions up to 128.
//
// A block of threads stays on its multiprocessor and takes items (128 query rows of a segment, one
// head) from a queue. Two warps produce, by turns: they walk over the blocks of 128 keys that an
// item sees, across all segments, and have the copy engine bring them; a third warp brings their
// values, and a fourth looks whether they are finite, where that matters. Two groups of four warps
// consume, 64 rows each: scores = Q K^T, online softmax in powers of two, output += P V with P from
// registers. LADDER.md says what each idea brought.
#include "optimized/attention/dropped.h"
#include "optimized/attention/hopper/forward/kernel.cuh"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/device/processors.h"

namespace ringside::hopper {
namespace {

bool make_maps(ForwardMaps& maps, const ForwardArguments& a) {
  const AttentionShape& s = a.shape;
  const bool made =
      make_map(maps.q, a.q, {s.type, s.head_dim_qk, s.num_heads}) &&
      make_map(maps.k, a.k, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
      make_map(maps.v, a.v, {s.type, s.head_dim_v, s.num_kv_heads}) &&
      make_map(maps.whole_k, a.k, {s.type, s.head_dim_qk, s.num_kv_heads}, kBlockKeys) &&
      make_map(maps.whole_v, a.v, {s.type, s.head_dim_v, s.num_kv_heads}, kBlockKeys);
  if (a.accumulate != Accumulate::only) return made;
  return made && make_map(maps.out, a.out, {s.type, s.head_dim_v, s.num_heads}, kRowsOfWarp);
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
          .is_final = a.accumulate == Accumulate::only,
          .resumes = a.accumulate == Accumulate::merge};
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
  const bool rows_fit = a.q.rows <= most_rows && a.k.rows <= most_rows && a.v.rows <= most_rows;
  return rows_fit && int64_t{a.work.max_items} * s.num_heads < kMostEntries &&
         fits_a_map(a.q, {s.type, s.head_dim_qk, s.num_heads}) &&
         fits_a_map(a.k, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
         fits_a_map(a.v, {s.type, s.head_dim_v, s.num_kv_heads}) &&
         (a.accumulate != Accumulate::only ||
          fits_a_map(a.out, {s.type, s.head_dim_v, s.num_heads}));
}

cudaError_t forward(const ForwardArguments& arguments, cudaStream_t stream) {
  const int64_t items = int64_t{arguments.work.max_items} * arguments.shape.num_heads;
  if (items == 0) return cudaSuccess;
  ForwardMaps maps{};
  if (!make_maps(maps, arguments)) return cudaErrorInvalidValue;
  const cudaError_t error =
      cudaMemsetAsync(arguments.workspace, 0, forward_workspace_bytes(arguments.shape), stream);
  if (error != cudaSuccess) return error;
  const int blocks = processors_of_device();
  const dim3 grid(static_cast<unsigned>(items < blocks ? items : blocks));
  const ForwardParameters parameters = parameters_of(arguments, maps);
  static_assert(kBlockKeys == kDroppedKeys);
  const cudaError_t launched =
      has_options(arguments)
          ? launch_with_options({parameters, score_numbers(arguments.shape, arguments.options,
                                                           arguments.sinks, arguments.max_logit)},
                                grid, stream)
          : launch_forward<false>(parameters, grid, stream);
  return launched != cudaSuccess ? launched : add_dropped(arguments, parameters.dropped, stream);
}

}  // namespace ringside::hopper
