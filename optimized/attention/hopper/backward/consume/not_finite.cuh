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

// A number that is not finite where something of the queries is not from which come a warp's
// products with its keys, all of them: of scores their own, of d(weights) their dout. A sum of
// those with one key, as 0 times what is not finite is NaN. Other reasons may make it such a
// number.
template <int R>
__device__ __forceinline__ float told_by(const float (&products)[R]) {
  float of_two[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < R / 4; ++n) of_two[0] += products[4 * n], of_two[1] += products[4 * n + 1];
  return of_two[0] + of_two[1];
}
// Of a warp, whether such numbers say that all is finite.
__device__ __forceinline__ bool says_finite(float told) {
  return __all_sync(~0u, fabsf(told) < INFINITY);
}

// So many rows, from a first one on, of tiles of queries and of their dout.
template <typename T, typename Shape, int kRows = kQueries>
struct QueryTiles {
  uint8_t *q, *dout;
  int first_row = 0;

  // visit(part of the tiles, its bytes, which are constant)
  template <typename Visit>
  __device__ __forceinline__ void for_each_part(Visit visit) const {
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
  }

  // By all threads of one group.
  __device__ __forceinline__ bool found_finite(int group, uint32_t thread) const {
    FiniteCheck<T> check;
    for_each_part([&](uint8_t* part, auto bytes) {
      for_each_chunk<decltype(bytes)::value, kGroupThreads>(
          part, thread, [&](const uint4& chunk) { check.look_at(chunk); });
    });
    return all_of_group(group, check.all_finite());
  }
  // By all lanes of one warp.
  __device__ __forceinline__ bool found_finite() const {
    FiniteCheck<T> check;
    for_each_part([&](uint8_t* part, auto bytes) {
#pragma unroll 1
      for (int i = threadIdx.x % 32; i < decltype(bytes)::value / 16; i += 32)
        check.look_at(reinterpret_cast<const uint4*>(part)[i]);
    });
    return __all_sync(~0u, check.all_finite());
  }

  // Queries that see the item in part: 0 in the place of what is not finite, once both groups have
  // their scores. No product is under way here. alone: the other group has nothing to do with them.
  __device__ __forceinline__ void drop(int group, uint32_t thread, bool alone,
                                       int32_t* dropped) const {
    const int sharers = alone ? kGroupThreads : kBoth;
    alone ? synchronize(kGroupBarrier + group, kGroupThreads) : meet<false>(group);
    for_each_part([&](uint8_t* part, auto bytes) {
      auto* const chunks = reinterpret_cast<uint4*>(part);
#pragma unroll 1
      for (int i = alone ? thread : group * kGroupThreads + thread; i < decltype(bytes)::value / 16;
           i += sharers)
        chunks[i] = finite_part<T>(chunks[i]);
    });
    show_to_async();
    alone ? synchronize(kGroupBarrier + group, kGroupThreads) : meet<true>(group);
    *dropped = 1;
  }
};

// What is found in such tiles is dropped, by all threads of a group. kEachPart: each warp looks at
// a part of the tiles, not at all.
template <typename T, typename Shape, int kRows, bool kEachPart>
__device__ __forceinline__ void drop_from(const QueryTiles<T, Shape, kRows>& tiles, int group,
                                          uint32_t thread, bool alone, int32_t* dropped) {
  const bool finite = kEachPart ? tiles.found_finite(group, thread) : tiles.found_finite();
  if (!finite) tiles.drop(group, thread, alone, dropped);
}

// The same as a call, as others of what is rare, so that little code lies between the instructions
// that every block executes. Arguments are numbers, which fit registers. Where consumers have no
// registers to spare for a call, there is none.
template <typename T, typename Shape, bool kEachPart>
__device__ __noinline__ void call_drop_from(uint8_t* q, uint8_t* dout, int group, uint32_t thread,
                                            bool alone, int32_t* dropped) {
  drop_from<T, Shape, kQueries, kEachPart>({q, dout}, group, thread, alone, dropped);
}

}  // namespace ringside::hopper::backward_detail
