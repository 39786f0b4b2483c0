// Barriers in shared memory (mbarrier), on which bulk copies complete, and rings of stages.
#pragma once

#include <cstdint>

namespace ringside::hopper {

using Barrier = uint64_t;  // in shared memory

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A phase ends when so many have arrived and all bytes that were announced have landed.
__device__ inline void init(Barrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(arrivals)
               : "memory");
}

// Behind all init(): the copy engine sees them. __syncthreads() then shows them to threads.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}

// How many threads of a warp arrive for it: one, behind __syncwarp(). racecheck does not see that
// order, so kernels can be compiled for it (RINGSIDE_EVERY_THREAD_ARRIVES) in which all of them do.
#ifdef RINGSIDE_EVERY_THREAD_ARRIVES
inline constexpr int kArrivalsOfWarp = 32;
#else
inline constexpr int kArrivalsOfWarp = 1;
#endif

// By all threads of a warp.
__device__ __forceinline__ void arrive_behind_syncwarp(Barrier& barrier, uint32_t thread) {
  if (kArrivalsOfWarp == 32 || thread % 32 == 0) arrive(barrier);
}
__device__ __forceinline__ void arrive_as_warp(Barrier& barrier, uint32_t thread = threadIdx.x) {
  __syncwarp();
  arrive_behind_syncwarp(barrier, thread);
}
// Where the first thread of a warp arrives in a way of its own, behind __syncwarp(): the others of
// that warp, or one thread for others that are not there.
__device__ __forceinline__ void arrive_beside_first(Barrier& barrier) {
  if (kArrivalsOfWarp == 32 && threadIdx.x % 32 != 0) arrive(barrier);
}
__device__ inline void arrive_instead_of_others(Barrier& barrier) {
  for (int others = 1; others < kArrivalsOfWarp; ++others) arrive(barrier);
}

// Arrives, and announces bytes that bulk copies will bring.
__device__ inline void arrive_and_expect(Barrier& barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
      "r"(bytes)
      : "memory");
}

// Until the phase of this parity has ended: 0 for the first. Of a new barrier, the phase before the
// first counts as ended.
__device__ inline void wait(Barrier& barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 0x989680;\n"
      "@done bra landed;\n"
      "bra again;\n"
      "landed:\n"
      "}\n" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

// Whether it has ended, for who has something to do before the answer is needed. If so, nobody need
// wait for it.
__device__ inline bool has_ended(Barrier& barrier, uint32_t parity) {
  int ended;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.s32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(ended)
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}

// A place in a ring of `kStages` stages, each with a "full" and an "empty" barrier.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;  // of "full", to its reader; its writer waits for "empty" with the other

  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  __device__ RingPlace next() const {
    RingPlace place = *this;
    place.advance();
    return place;
  }
};

// Threads of whole warps, `threads` of them, who come to it by the same calls; numbers 1 to 15, as
// 0 is __syncthreads().
__device__ inline void synchronize(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// Likewise; whether all of them say so.
__device__ inline bool all_of(int number, int threads, bool says) {
  int all;
  asm volatile(
      "{\n"
      ".reg .pred mine, all;\n"
      "setp.ne.s32 mine, %1, 0;\n"
      "bar.red.and.pred all, %2, %3, mine;\n"
      "selp.s32 %0, 1, 0, all;\n"
      "}\n"
      : "=r"(all)
      : "r"(int{says}), "r"(number), "r"(threads)
      : "memory");
  return all != 0;
}
// The same without waiting: for others, who do.
__device__ inline void let_pass(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// What this thread wrote to shared memory is seen by bulk copies and by wgmma that begin behind it.
// Whoever starts those for others needs a barrier behind their fences.
__device__ inline void show_to_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// By every thread of four warps: how many registers each has from here on.
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace ringside::hopper
