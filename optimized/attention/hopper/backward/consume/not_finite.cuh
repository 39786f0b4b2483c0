// What is not finite in tiles of queries, which those who do not see all keys must not meet.
#pragma once

#include "optimized/attention/hopper/backward/shared/blocks.cuh"

namespace ringside::hopper::backward_detail {

// visit(16 bytes) for a thread's part of what `threads` threads share: so many bytes of a tile, of
// which registers hold four at a time.
template <int kBytes, int kSharers, typename Visit>
__device__ __forceinline__ void for_each_chunk(uint8_t* tile, uint32_t thread, Visit visit) {
#pragma unroll 4
  for (int i = 0; i < kBytes / 16 / kSharers; ++i)
    visit(reinterpret_cast<uint4*>(tile)[i * kSharers + thread]);
}

__device__ __forceinline__ bool all_of_group(int group, bool says) {
  return all_of(kGroupBarrier + group, kGroupThreads, says);
}

// Queries that see the item in part: 0 in the place of what is not finite, once both groups have
// their scores. No product is under way here. Of so many rows of the tiles from a first one on.
// alone: the other group has nothing to do with them.
template <typename T, typename Shape, int kRows = kQueries>
__device__ __forceinline__ void drop_not_finite(uint8_t* q, uint8_t* dout, int32_t* dropped,
                                                int group, uint32_t thread, bool alone,
                                                int first_row = 0) {
  // visit(part of the tiles, its bytes, which are constant)
  const auto for_each_part = [&](auto visit) {
    if constexpr (kRows == kQueries) {
      visit(q, std::integral_constant<int, Shape::kQueryTile>{});
      visit(dout, std::integral_constant<int, Shape::kDoutTile>{});
    } else {
#pragma unroll 1
      for (int panel = 0; panel < Shape::kQkPanels + Shape::kVPanels; ++panel)
        visit((panel < Shape::kQkPanels ? q + panel * kQueryPanel
                                        : dout + (panel - Shape::kQkPanels) * kQueryPanel) +
                  first_row * 128,
              std::integral_constant<int, kRows * 128>{});
    }
  };
  FiniteCheck<T> check;
  for_each_part([&](uint8_t* part, auto bytes) {
    for_each_chunk<decltype(bytes)::value, kGroupThreads>(
        part, thread, [&](const uint4& chunk) { check.look_at(chunk); });
  });
  if (all_of_group(group, check.all_finite())) return;
  const int barrier = alone ? kGroupBarrier + group : kBothBarrier;
  const int sharers = alone ? kGroupThreads : kGroups * kGroupThreads;
  synchronize(barrier, sharers);
  for_each_part([&](uint8_t* part, auto bytes) {
    auto* const chunks = reinterpret_cast<uint4*>(part);
#pragma unroll 1
    for (int i = alone ? thread : group * kGroupThreads + thread; i < decltype(bytes)::value / 16;
         i += sharers)
      chunks[i] = finite_part<T>(chunks[i]);
  });
  show_to_async();
  synchronize(barrier, sharers);
  *dropped = 1;
}

}  // namespace ringside::hopper::backward_detail
