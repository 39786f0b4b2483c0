#include <algorithm>

#include "optimized/device/error.h"
#include "optimized/links/lengths_word.h"
#include "optimized/tables/own_rows.h"

namespace ringside {
namespace {

constexpr int kLengthsThreads = 256, kLanes = 32, kMostBlocks = 64;
using Word = unsigned long long;  // what atomicAdd takes

__global__ void add_up_kernel(const __grid_constant__ LengthTables t, Word* word) {
  Word sum = 0;
  for (int entry = blockIdx.x * kLengthsThreads + threadIdx.x; entry < LengthsWord::entries(t);
       entry += gridDim.x * kLengthsThreads)
    sum += LengthsWord::of_entry(t, entry);
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
  if (threadIdx.x % kLanes == 0) atomicAdd(word, sum);
}

__global__ void compare_kernel(WordsOfProcesses words, int32_t* differ, int32_t* status) {
  bool other = false;
  for (int process = threadIdx.x; process < words.processes; process += kLengthsThreads)
    other |= process != words.mine && words.data[process] != *words.own;
  const bool any = __syncthreads_or(other) != 0;
  if (threadIdx.x != 0) return;
  *differ = any;
  if (any) *status = 1;
}

// Halves of float32, as arrays of 16 bits have no others; -inf is 0xff800000.
__global__ void empty_kernel(const int32_t* differ, Emptied results) {
  if (*differ == 0) return;
  const uint16_t odd = results.value == Emptied::Value::zero ? 0 : 0xff80;
  for (int64_t i = int64_t{blockIdx.x} * kLengthsThreads + threadIdx.x; i < results.bytes / 2;
       i += int64_t{gridDim.x} * kLengthsThreads)
    static_cast<uint16_t*>(results.data)[i] = i % 2 == 1 ? odd : 0;
}

unsigned blocks_of(int64_t size) {
  return static_cast<unsigned>(
      std::min<int64_t>((size + kLengthsThreads - 1) / kLengthsThreads, kMostBlocks));
}

}  // namespace

void write_lengths_word(const LengthTables& tables, uint64_t* word, cudaStream_t stream) {
  static_assert(sizeof(Word) == sizeof(uint64_t));
  RINGSIDE_CUDA(cudaMemsetAsync(word, 0, sizeof(*word), stream));
  add_up_kernel<<<blocks_of(LengthsWord::entries(tables)), kLengthsThreads, 0, stream>>>(
      tables, reinterpret_cast<Word*>(word));
  RINGSIDE_CUDA(cudaGetLastError());
}

void compare_lengths(const WordsOfProcesses& words, int32_t* differ, int32_t* status,
                     cudaStream_t stream) {
  compare_kernel<<<1, kLengthsThreads, 0, stream>>>(words, differ, status);
  RINGSIDE_CUDA(cudaGetLastError());
}

void empty_if(const int32_t* differ, const std::vector<Emptied>& results, cudaStream_t stream) {
  for (const Emptied& of : results) {
    if (of.bytes == 0) continue;
    empty_kernel<<<blocks_of(of.bytes / 2), kLengthsThreads, 0, stream>>>(differ, of);
    RINGSIDE_CUDA(cudaGetLastError());
  }
}

}  // namespace ringside
