// Attention backward for Hopper: bfloat16 and float16, head dimensions up to 128.
//
// Key blocks of 128 rows outside, query blocks of 64 inside. A block of threads stays on its
// multiprocessor and takes items (a key block, one key head) from a queue. One warp walks over the
// query blocks that see the item, across segments and the query heads of the group, and leaves
// notes of them, by which others have the copy engine bring them. Two groups of four warps consume,
// 64 keys each: dk and dv stay in their registers, and leave by the copy engine where they are
// final. dq = dS K is added up in global memory by the copy engine, in float32; where the item is
// all that its queries meet, it is final at once.
#include <algorithm>

#include "optimized/attention/dropped.h"
#include "optimized/attention/hopper/backward/backward_consume.cuh"
#include "optimized/attention/hopper/backward/backward_produce.cuh"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/attention/launch.cuh"
#include "optimized/attention/mma/kernels.h"
#include "optimized/device/processors.h"

namespace ringside::hopper {
namespace backward_detail {
namespace {

template <typename T, Dq kDq>
__global__ void __launch_bounds__(kThreads, 1)
    attention_backward(const __grid_constant__ Parameters parameters) {
  extern __shared__ __align__(1024) uint8_t any_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(any_shared);
  if (threadIdx.x == 0) shared.barriers.init_all(kArriving<kDq>);
  __syncthreads();
  const int role = threadIdx.x / kGroupThreads;
  if (role == 0) {
    give_registers<kProducerRegisters>();
    const int warp = threadIdx.x / 32;
    if (warp == 0) write_notes(parameters, shared);
    if (warp == 1) load_rows<kArriving<kDq>>(parameters, shared);
    if (warp == 2 && threadIdx.x % 32 == 0) load_tiles(parameters, shared);
    if (kDq != Dq::none && warp == 3 && threadIdx.x % 32 == 0)
      send_results<kDq>(parameters, shared);
  } else {
    take_registers<kConsumerRegisters>();
    // All warps of a group agree on its number, which the compiler must see.
    const int group = static_cast<int>(__reduce_or_sync(~0u, role - 1));
    Consumer<T, kDq>{parameters, shared, group}.run();
  }
}

template <typename T>
cudaError_t launch(const Parameters& parameters, Dq dq, dim3 grid, cudaStream_t stream) {
  const auto run = [&](auto kernel) {
    return launch_with_shared(kernel, grid, kThreads, sizeof(Shared), stream, parameters);
  };
  if (dq == Dq::none) return run(attention_backward<T, Dq::none>);
  if (dq == Dq::add) return run(attention_backward<T, Dq::add>);
  return run(attention_backward<T, Dq::store>);
}

Dq dq_of(const BackwardArguments& a) {
  if (a.deterministic) return Dq::none;
  return a.one_item_of_keys ? Dq::store : Dq::add;
}

MapShape shape_of_dq(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  return {dq_of(a) == Dq::store ? s.type : ElementType::float32, s.head_dim_qk, s.num_heads};
}

bool make_maps(Maps& maps, const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  return make_map(maps.q, a.q, {s.type, s.head_dim_qk, s.num_heads}) &&
         make_map(maps.dout, a.dout, {s.type, s.head_dim_v, s.num_heads}) &&
         make_map(maps.k, a.k, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
         make_map(maps.v, a.v, {s.type, s.head_dim_v, s.num_kv_heads}) &&
         (dq_of(a) == Dq::none || make_map(maps.dq, a.dq, shape_of_dq(a))) &&
         (a.accumulate != Accumulate::only ||
          (make_map(maps.dk, a.dk, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
           make_map(maps.dv, a.dv, {s.type, s.head_dim_v, s.num_kv_heads})));
}

// Two heads at a time at least: with one, processors idle at the end of each.
constexpr int kHeadsOfSection = 2;

Parameters parameters_of(const BackwardArguments& a, const Maps& maps) {
  const int heads = a.shape.num_kv_heads;
  return {.maps = maps,
          .shape = a.shape,
          .lse = a.lse,
          .delta = a.delta,
          .work = a.keys,
          .order = {heads, std::min(kHeadsOfSection, heads)},
          .taken = static_cast<unsigned*>(a.workspace),
          .dropped = static_cast<int32_t*>(a.workspace) + 1,
          .dk = a.dk,
          .dv = a.dv,
          .is_first = a.accumulate == Accumulate::start,
          .is_final = a.accumulate == Accumulate::only};
}

cudaError_t differentiate_keys(const BackwardArguments& a, cudaStream_t stream) {
  const int64_t items = int64_t{a.keys.max_items} * a.shape.num_kv_heads;
  if (items == 0) return cudaSuccess;
  Maps maps{};
  if (!make_maps(maps, a)) return cudaErrorInvalidValue;
  const cudaError_t error =
      cudaMemsetAsync(a.workspace, 0, backward_workspace_bytes(a.shape), stream);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(processors_of_device(), items)));
  const Parameters parameters = parameters_of(a, maps);
  static_assert(kQueries == kDroppedQueries && kKeys == kDroppedKeys &&
                kPanelColumns == kDroppedColumns);
  const cudaError_t launched = a.shape.type == ElementType::float16
                                   ? launch<__half>(parameters, dq_of(a), grid, stream)
                                   : launch<__nv_bfloat16>(parameters, dq_of(a), grid, stream);
  return launched != cudaSuccess ? launched : add_dropped(a, parameters.dropped, stream);
}

}  // namespace
}  // namespace backward_detail

int backward_key_rows(const AttentionShape&) { return backward_detail::kKeys; }
int64_t backward_workspace_bytes(const AttentionShape&) { return 2 * sizeof(unsigned); }

bool takes(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  const int64_t most = kRaggedRows;
  const bool rows_fit = a.q.rows <= most && a.dout.rows <= most && a.dq.rows <= most &&
                        a.k.rows <= most && a.v.rows <= most;
  const ElementType result =
      a.accumulate == Accumulate::only ? s.type : ElementType::float32;  // of dk and dv
  return rows_fit && fits_a_map(a.q, {s.type, s.head_dim_qk, s.num_heads}) &&
         fits_a_map(a.dout, {s.type, s.head_dim_v, s.num_heads}) &&
         fits_a_map(a.k, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
         fits_a_map(a.v, {s.type, s.head_dim_v, s.num_kv_heads}) &&
         fits_a_map(a.dk, {result, s.head_dim_qk, s.num_kv_heads}) &&
         fits_a_map(a.dv, {result, s.head_dim_v, s.num_kv_heads}) &&
         (a.deterministic || fits_a_map(a.dq, backward_detail::shape_of_dq(a)));
}

cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream) {
  if (arguments.one_item_of_keys &&
      (arguments.accumulate != Accumulate::only || !arguments.keys.is_full))
    return cudaErrorInvalidValue;  // of other lists the host cannot know it
  const cudaError_t error = backward_detail::differentiate_keys(arguments, stream);
  if (error != cudaSuccess || !arguments.deterministic) return error;
  return mma::backward_queries(arguments, stream);
}

}  // namespace ringside::hopper
