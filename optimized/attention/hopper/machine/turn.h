// Words in global memory by which blocks of threads take turns at adding to the same rows by bulk
// copies. By one thread.
//
// Words are raised behind a release: behind wait_until_stored() alone, sums of bulk copies may
// still come after those of whoever has seen the word. It waits for all that a block of threads has
// written, a thousand cycles and more behind copies.
#pragma once

#include <cstdint>

namespace ringside::hopper {

// Whether so many others have let pass.
__device__ inline bool has_turn(const unsigned* passed, unsigned turn) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(passed) : "memory");
  return value == turn;
}

// Until they have. What they added by bulk copies comes before what is added or brought from here
// on.
__device__ inline void wait_for_turn(const unsigned* passed, unsigned turn) {
  while (!has_turn(passed, turn)) __nanosleep(32);
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Behind wait_until_stored<0>(), or told by who has waited.
__device__ inline void let_next_pass(unsigned* passed) {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(passed) : "memory");
}

}  // namespace ringside::hopper
