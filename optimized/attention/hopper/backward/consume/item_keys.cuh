// An item's keys in shared memory: how they come there, and what they are to dq.
//
// Where some of a block's queries do not see all keys of the item, their d(scores) are zeros, and 0
// times a number that is not finite is NaN. So dq of such a block is computed from keys that have 0
// in the place of such numbers: who does not see them keeps his bits. What they add to dq of those
// who do is another launch's (seen_pairs.cuh). Scores are computed from the keys as they are, which
// are brought again where more blocks come.
#pragma once

#include "optimized/attention/hopper/backward/consume/not_finite.cuh"
#include "optimized/attention/hopper/backward/shared/loads.cuh"

namespace ringside::hopper::backward_detail {

// thread: of both groups'.
template <typename T, typename Shape>
__device__ __forceinline__ void drop_from_keys(uint8_t* tile, uint32_t thread) {
  meet<false>(thread / kGroupThreads);
  auto* const chunks = reinterpret_cast<uint4*>(tile);
#pragma unroll 1
  for (int i = thread; i < Shape::kKeyTile / 16; i += kBoth) chunks[i] = finite_part<T>(chunks[i]);
  show_to_async();
  meet<true>(thread / kGroupThreads);
}
// note: of one of the item's blocks. The barrier is at its first phase before and behind.
template <typename Shape>
__device__ __forceinline__ void bring_keys_again(const CUtensorMap* map, uint8_t* tile,
                                                 Barrier* again, const BlockNote* note,
                                                 uint32_t thread) {
  meet<false>(thread / kGroupThreads);
  if (thread == 0) {
    arrive(*again);
    wait(*again, 0);  // has ended; synccheck has nobody arrive twice without asking
    load_keys<Shape, Shape::kQkPanels>(*map, tile, *again, *note);
  }
  meet<true>(thread / kGroupThreads);
  wait(*again, 1);
}

// The same as calls: see call_drop_from().
template <typename T, typename Shape>
__device__ __noinline__ void call_drop_from_keys(uint8_t* tile, uint32_t thread) {
  drop_from_keys<T, Shape>(tile, thread);
}
template <typename Shape>
__device__ __noinline__ void call_bring_keys_again(const CUtensorMap* map, uint8_t* tile,
                                                   Barrier* again, const BlockNote* note,
                                                   uint32_t thread) {
  bring_keys_again<Shape>(map, tile, again, note, thread);
}

// Of an item's keys, by both groups, when neither has a product under way and each has looked at
// its part of them.
template <typename T, typename Shape>
struct ItemKeys {
  const Parameters& parameters;
  PlainShared<Shape>& shared;
  const int group;
  const uint32_t thread, item;

  __device__ __forceinline__ uint8_t* tile() const { return shared.k[item % Shape::kKeyStages]; }

  // What says that some of them are not finite.
  __device__ __forceinline__ int word() const { return static_cast<int>(item + 1); }

  // By one warp of a group that has keys of its own: at those of which it has products.
  __device__ __forceinline__ void look_at_own() const {
    constexpr int kOwnRows = kGroupKeys / 4;
    const int first_row = group * kGroupKeys + static_cast<int>(thread) / 32 * kOwnRows;
    FiniteCheck<T> check;
#pragma unroll 1
    for (int panel = 0; panel < Shape::kQkPanels; ++panel)
#pragma unroll 1
      for (int i = thread % 32; i < kOwnRows * 8; i += 32)
        check.look_at(
            reinterpret_cast<const uint4*>(tile() + panel * Shape::kKeyPanel)[first_row * 8 + i]);
    if (__all_sync(~0u, check.all_finite())) return;
    if (thread % 32 == 0)
      shared.keys_found[group][item % kFoundStages] = word(), *parameters.dropped = 1;
  }

  // By one group: so many bytes from this one on are its part of the tile. found: its word for it.
  template <int kBytes>
  __device__ __forceinline__ void look_at(int first_byte, int (&found)[kFoundStages]) const {
    FiniteCheck<T> check;
    for_each_chunk<kBytes, kGroupThreads>(tile() + first_byte, thread,
                                          [&](const uint4& chunk) { check.look_at(chunk); });
    const bool all_finite = all_of_group(group, check.all_finite());
    if (!all_finite && thread == 0) found[item % kFoundStages] = word(), *parameters.dropped = 1;
  }

  __device__ __forceinline__ bool all_finite() const {
    int found = 0;
#pragma unroll
    for (const auto& part : shared.keys_found) found |= part[item % kFoundStages] == word();
    return __reduce_or_sync(~0u, found) == 0;
  }

  __device__ __forceinline__ uint32_t thread_of_both() const {
    return group * kGroupThreads + thread;
  }
  static constexpr bool kCalls = Shape::kTakesTurns;
  __device__ __forceinline__ void drop_not_finite() const {
    if (all_finite()) return;
    if constexpr (kCalls)
      call_drop_from_keys<T, Shape>(tile(), thread_of_both());
    else
      drop_from_keys<T, Shape>(tile(), thread_of_both());
  }

  // What was dropped, behind the products, where more scores come.
  __device__ __forceinline__ void bring_again(const BlockNote& note) const {
    if (all_finite()) return;
    const CUtensorMap* map = &parameters.maps.k;
    Barrier* again = &shared.barriers.k_again;
    if constexpr (kCalls)
      call_bring_keys_again<Shape>(map, tile(), again, &note, thread_of_both());
    else
      bring_keys_again<Shape>(map, tile(), again, &note, thread_of_both());
  }
};

}  // namespace ringside::hopper::backward_detail
