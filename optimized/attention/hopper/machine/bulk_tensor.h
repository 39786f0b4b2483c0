// Boxes of a ragged tensor map (box.h) between global and shared memory, by the copy engine.
// One thread starts each.
#pragma once

#include <cuda.h>

#include "optimized/attention/hopper/machine/barrier.h"
#include "optimized/attention/hopper/machine/box.h"

namespace ringside::hopper {

__device__ inline void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// To shared memory; counts a whole box of bytes on a barrier, zeros too.
__device__ inline void load_box(uint32_t to, const CUtensorMap& map, const BoxCoordinates& from,
                                Barrier& landed) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
      "l"(&map), "r"(from.column), "r"(from.head), "r"(from.z), "r"(from.y), "r"(from.x),
      "r"(shared_address(&landed))
      : "memory");
}

__device__ inline void store_box(const CUtensorMap& map, const BoxCoordinates& to, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::
          "l"(&map),
      "r"(to.column), "r"(to.head), "r"(to.z), "r"(to.y), "r"(to.x), "r"(from)
      : "memory");
}

// Adds each element to what is there, atomically.
__device__ inline void add_box(const CUtensorMap& map, const BoxCoordinates& to, uint32_t from) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group "
      "[%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(&map),
      "r"(to.column), "r"(to.head), "r"(to.z), "r"(to.y), "r"(to.x), "r"(from)
      : "memory");
}

// Stores and sums that this thread started since the last call form a group.
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until all but the last kLeft groups have read shared memory, which may then be written again.
template <int kLeft>
__device__ inline void wait_until_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}
// Until they have written global memory as well.
template <int kLeft>
__device__ inline void wait_until_stored() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace ringside::hopper
