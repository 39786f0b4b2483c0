#include "optimized/device/error.h"
#include "optimized/links/call_words.h"
#include "optimized/links/mailbox.h"

namespace ringside {
namespace {

constexpr int kWordThreads = 1024;

struct SomeResults {
  Spoilable of[kMostSpoilable];
};

__global__ void start_kernel(uint32_t* header) {
  volatile uint32_t* started = header + mailbox::kStarted;
  *started = *started + 1;
}

// Whether other words have come than should have; told to all threads.
__device__ bool words_differ(const ExpectedWord* expected, int number) {
  bool differs = false;
  for (int i = threadIdx.x; i < number; i += kWordThreads) {
    volatile uint32_t* word = expected[i].word;
    differs |= *word != expected[i].token;
    *word = 0;
  }
  return __syncthreads_or(differs) != 0;
}

__device__ void spoil(const Spoilable& results) {
  const auto address = reinterpret_cast<uintptr_t>(results.data);
  if (address % sizeof(uint4) == 0 && results.bytes % sizeof(uint4) == 0)
    for (int64_t i = threadIdx.x; i < results.bytes / int64_t{sizeof(uint4)}; i += kWordThreads)
      static_cast<uint4*>(results.data)[i] = {~0u, ~0u, ~0u, ~0u};
  else
    for (int64_t i = threadIdx.x; i < results.bytes / 2; i += kWordThreads)
      static_cast<uint16_t*>(results.data)[i] = 0xffff;
}

// One block of threads: a launch costs each call more than spoiling costs one that failed. What the
// host has to tell takes microseconds to come, and is asked for first.
__global__ void __launch_bounds__(kWordThreads)
    end_kernel(uint32_t* header, const ExpectedWord* expected, int number, uint32_t* unfit,
               SomeResults some, bool is_first, bool is_last) {
  volatile uint32_t* of_host = header;
  const bool tells = threadIdx.x == 0;
  const uint32_t aborted = tells ? of_host[mailbox::kAborted] : 0;
  const uint32_t completed = tells ? of_host[mailbox::kCompleted] : 0;
  bool failed;
  if (is_first) {
    const bool differ = words_differ(expected, number);
    if (tells && differ && aborted == 0) of_host[mailbox::kMismatch] = 1;
    failed = __syncthreads_or(differ || aborted != 0) != 0;
    if (tells) *unfit = failed;
  } else {
    failed = *unfit != 0;
  }
  if (failed) {
    for (const Spoilable& results : some.of) spoil(results);
    __threadfence_system();
    __syncthreads();
  }
  if (tells && is_last) of_host[mailbox::kCompleted] = completed + 1;
}

}  // namespace

void start_call_words(uint32_t* header, cudaStream_t stream) {
  start_kernel<<<1, 1, 0, stream>>>(header);
  RINGSIDE_CUDA(cudaGetLastError());
}

void end_call_words(uint32_t* header, const ExpectedWord* expected, int number,
                    const std::vector<Spoilable>& results, uint32_t* unfit, cudaStream_t stream) {
  size_t told = 0;
  do {
    SomeResults some;
    const bool is_first = told == 0;
    for (Spoilable& next : some.of)
      if (told < results.size()) next = results[told++];
    end_kernel<<<1, kWordThreads, 0, stream>>>(header, expected, number, unfit, some, is_first,
                                               told == results.size());
    RINGSIDE_CUDA(cudaGetLastError());
  } while (told < results.size());
}

}  // namespace ringside
