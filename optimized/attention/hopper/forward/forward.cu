// Attention forward for Hopper: bfloat16 and float16, head dimensions up to 128.
//
// A block of threads stays on its multiprocessor and takes items (128 query rows of a segment, one
// head) from a queue. Two warps produce, by turns: they walk over the blocks of 128 keys that an
// item sees, across all segments, and have the copy engine bring them; a third warp brings their
// values, and a fourth looks whether they are finite, where that matters. Two groups of four warps
// consume, 64 rows each: scores = Q K^T, online softmax in powers of two, output += P V with P from
// registers. LADDER.md says what each idea brought.
#include "optimized/attention/dropped.h"
#include "optimized/attention/hopper/forward/consumer.cuh"
#include "optimized/attention/hopper/forward/producer.cuh"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/attention/launch.cuh"
#include "optimized/device/processors.h"

namespace ringside::hopper {
namespace {

__device__ void init_barriers(ForwardShared& s) {
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

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    attention_forward(const __grid_constant__ ForwardParameters parameters) {
  extern __shared__ __align__(1024) uint8_t any_shared[];  // as swizzled tiles must lie
  ForwardShared& shared = *reinterpret_cast<ForwardShared*>(any_shared);
  if (threadIdx.x == 0) init_barriers(shared);
  __syncthreads();
  // Of a whole warp, as the compiler is to know: descriptors then lie in its registers.
  const int role = static_cast<int>(__reduce_or_sync(~0u, threadIdx.x / kThreadsOfGroup));
  if (role == 0) {
    give_registers<kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp < kProducers)
      Producer(parameters, shared).run();
    else if (warp == kProducers + 1)
      inspect_values<T>(parameters, shared);
    else if (threadIdx.x % 32 == 0)
      load_values(parameters, shared);
  } else {
    take_registers<kConsumerRegisters>();
    Consumer<T>(parameters, shared, role - 1).run();
  }
}

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

int forward_rows(const AttentionShape&) { return kItemRows; }
int64_t forward_workspace_bytes(const AttentionShape&) { return 2 * sizeof(int32_t); }

bool takes(const ForwardArguments& a) {
  const AttentionShape& s = a.shape;
  const int64_t most_rows = kRaggedRows;
  const bool rows_fit = a.q.rows <= most_rows && a.k.rows <= most_rows && a.v.rows <= most_rows;
  return rows_fit && int64_t{a.work.max_items} * s.num_heads < kMostEntries &&
         s.softmax_scale > 1e-30f && a.max_logit == nullptr &&
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
  const cudaError_t launched = launch_with_shared(
      arguments.shape.type == ElementType::float16 ? attention_forward<__half>
                                                   : attention_forward<__nv_bfloat16>,
      grid, kThreads, sizeof(ForwardShared), stream, parameters);
  return launched != cudaSuccess ? launched : add_dropped(arguments, parameters.dropped, stream);
}

}  // namespace ringside::hopper
