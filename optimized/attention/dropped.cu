#include <algorithm>

#include "optimized/attention/dropped.h"
#include "optimized/attention/seen_pairs.cuh"
#include "optimized/device/processors.h"

namespace ringside {
namespace {

constexpr int kThreads = 256;

// visit(item, head) for those of this block of threads, where something was dropped.
template <typename Visit>
__device__ void for_each_item(const WorkList& work, int heads, const int32_t* dropped,
                              Visit visit) {
  if (*dropped == 0) return;
  const int64_t count = int64_t{*work.num_items} * heads;
  for (int64_t at = blockIdx.x; at < count; at += gridDim.x) {
    const WorkItem& item = work.items[at / heads];
    if (item.begin < item.end && is_sound(item)) visit(item, static_cast<int>(at % heads));
  }
}

template <typename T, bool kOptions>
__global__ void __launch_bounds__(kThreads)
    dropped_forward_kernel(const __grid_constant__ ForwardArguments a, const int32_t* dropped) {
  for_each_item(a.work, a.shape.num_heads, dropped, [&](const WorkItem& item, int head) {
    seen_pairs::add_values<T, kDroppedKeys, kOptions>(a, item, head);
  });
}

template <typename T, bool kOptions, int kItemKeys>
__global__ void __launch_bounds__(kThreads)
    dropped_backward_kernel(const __grid_constant__ BackwardArguments a, const int32_t* dropped) {
  for_each_item(a.keys, a.shape.num_kv_heads, dropped, [&](const WorkItem& item, int kv_head) {
    seen_pairs::add_queries<T, kDroppedQueries, kItemKeys, kOptions>(a, item, kv_head);
    if (!a.deterministic || a.turns != nullptr)
      seen_pairs::add_own_keys<T, kDroppedQueries, kItemKeys, kOptions>(a, item, kv_head);
  });
}

// Blocks enough for all processors, should there be work.
unsigned blocks_for(const WorkList& work, int heads) {
  const int64_t items = int64_t{work.max_items} * heads;
  return static_cast<unsigned>(std::min<int64_t>(items, 2 * processors_of_device()));
}

}  // namespace

cudaError_t add_dropped(const ForwardArguments& a, const int32_t* dropped, cudaStream_t stream) {
  const unsigned blocks = blocks_for(a.work, a.shape.num_heads);
  if (blocks == 0) return cudaSuccess;
  const auto run = [&](auto kernel) { kernel<<<blocks, kThreads, 0, stream>>>(a, dropped); };
  const bool half = a.shape.type == ElementType::float16;
  if (a.options.empty())
    run(half ? dropped_forward_kernel<__half, false>
             : dropped_forward_kernel<__nv_bfloat16, false>);
  else
    run(half ? dropped_forward_kernel<__half, true> : dropped_forward_kernel<__nv_bfloat16, true>);
  return cudaGetLastError();
}

cudaError_t add_dropped(const BackwardArguments& a, int item_keys, const int32_t* dropped,
                        cudaStream_t stream) {
  if (item_keys != 64 && item_keys != 128) return cudaErrorInvalidValue;
  if (item_keys == 64 && !a.options.empty()) return cudaErrorInvalidValue;
  const unsigned blocks = blocks_for(a.keys, a.shape.num_kv_heads);
  if (blocks == 0) return cudaSuccess;
  const auto run = [&](auto kernel) { kernel<<<blocks, kThreads, 0, stream>>>(a, dropped); };
  const bool half = a.shape.type == ElementType::float16;
  if (item_keys == 64)
    run(half ? dropped_backward_kernel<__half, false, 64>
             : dropped_backward_kernel<__nv_bfloat16, false, 64>);
  else if (a.options.empty())
    run(half ? dropped_backward_kernel<__half, false, 128>
             : dropped_backward_kernel<__nv_bfloat16, false, 128>);
  else
    run(half ? dropped_backward_kernel<__half, true, 128>
             : dropped_backward_kernel<__nv_bfloat16, true, 128>);
  return cudaGetLastError();
}

}  // namespace ringside
