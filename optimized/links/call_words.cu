#include "optimized/device/error.h"
#include "optimized/links/call_words.h"
#include "optimized/links/mailbox.h"

namespace ringside {
namespace {

constexpr int kWordThreads = 1024;

struct SomeResults {
  Spoilable of[kMostSpoilable];
};

__device__ void count(uint32_t* word) {
  volatile uint32_t* of_host = word;
  *of_host = *of_host + 1;
}

__global__ void start_kernel(uint32_t* header) { count(header + mailbox::kStarted); }

// Whether the call failed, told to all threads.
__device__ bool is_unfit(uint32_t* header, const ExpectedWord* expected, int number) {
  volatile uint32_t* of_host = header;
  bool differs = false;
  for (int i = threadIdx.x; i < number; i += kWordThreads) {
    volatile uint32_t* word = expected[i].word;
    differs |= *word != expected[i].token;
    *word = 0;
  }
  const bool any_differs = __syncthreads_or(differs) != 0;
  bool aborted = false;
  if (threadIdx.x == 0) {
    aborted = of_host[mailbox::kAborted] != 0;
    if (any_differs && !aborted) of_host[mailbox::kMismatch] = 1;
  }
  return __syncthreads_or(any_differs || aborted) != 0;
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

// One block of threads: a launch costs each call more than spoiling costs one that failed.
__global__ void __launch_bounds__(kWordThreads)
    end_kernel(uint32_t* header, const ExpectedWord* expected, int number, uint32_t* unfit,
               SomeResults some, bool is_first, bool is_last) {
  if (is_first) {
    const bool failed = is_unfit(header, expected, number);
    if (threadIdx.x == 0) *unfit = failed;
    if (failed)
      for (const Spoilable& results : some.of) spoil(results);
  } else if (*unfit != 0) {
    for (const Spoilable& results : some.of) spoil(results);
  }
  if (!is_last) return;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) count(header + mailbox::kCompleted);
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
