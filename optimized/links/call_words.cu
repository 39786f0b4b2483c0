#include "optimized/device/error.h"
#include "optimized/links/call_words.h"
#include "optimized/links/mailbox.h"

namespace ringside {
namespace {

constexpr int kWordThreads = 256, kBlocks = 256;

struct AllSpoilable {
  Spoilable of[kMostSpoilable];
};

__global__ void count_kernel(uint32_t* word) {
  volatile uint32_t* of_host = word;
  *of_host = *of_host + 1;
}

__global__ void compare_kernel(uint32_t* header, const ExpectedWord* expected, int count,
                               uint32_t* unfit) {
  volatile uint32_t* of_host = header;
  bool differs = false;
  for (int i = threadIdx.x; i < count; i += kWordThreads) {
    volatile uint32_t* word = expected[i].word;
    differs |= *word != expected[i].token;
    *word = 0;
  }
  const bool any_differs = __syncthreads_or(differs) != 0;
  if (threadIdx.x != 0) return;
  const bool aborted = of_host[mailbox::kAborted] != 0;
  if (any_differs && !aborted) of_host[mailbox::kMismatch] = 1;
  *unfit = any_differs || aborted;
}

__global__ void spoil_kernel(const uint32_t* unfit, AllSpoilable all) {
  if (*unfit == 0) return;
  for (const Spoilable& results : all.of)
    for (int64_t i = int64_t{blockIdx.x} * kWordThreads + threadIdx.x; i < results.bytes / 2;
         i += int64_t{gridDim.x} * kWordThreads)
      static_cast<uint16_t*>(results.data)[i] = 0xffff;
}

}  // namespace

void count_start(uint32_t* header, cudaStream_t stream) {
  count_kernel<<<1, 1, 0, stream>>>(header + mailbox::kStarted);
  RINGSIDE_CUDA(cudaGetLastError());
}

void compare_words(uint32_t* header, const ExpectedWord* expected, int count, uint32_t* unfit,
                   cudaStream_t stream) {
  compare_kernel<<<1, kWordThreads, 0, stream>>>(header, expected, count, unfit);
  RINGSIDE_CUDA(cudaGetLastError());
}

void spoil_if(const uint32_t* unfit, const std::vector<Spoilable>& results, cudaStream_t stream) {
  require(results.size() <= kMostSpoilable, "results in ", results.size(), " pieces of memory");
  AllSpoilable all;
  for (size_t i = 0; i < results.size(); ++i) all.of[i] = results[i];
  spoil_kernel<<<kBlocks, kWordThreads, 0, stream>>>(unfit, all);
  RINGSIDE_CUDA(cudaGetLastError());
}

void count_end(uint32_t* header, cudaStream_t stream) {
  count_kernel<<<1, 1, 0, stream>>>(header + mailbox::kCompleted);
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside
