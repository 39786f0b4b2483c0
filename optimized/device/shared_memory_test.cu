#include <gtest/gtest.h>

#include "optimized/device/error.h"
#include "optimized/device/memory.h"
#include "optimized/device/processors.h"
#include "optimized/device/properties.h"
#include "optimized/device/test_shared_memory.h"

namespace ringside::testing {
namespace {

#ifdef RINGSIDE_INTERPRETED
constexpr bool kInterpreted = true;
#else
constexpr bool kInterpreted = false;
#endif
constexpr unsigned kNaN = 0x7fc17fc1;        // of float32, and twice of bfloat16 and of float16
constexpr int kThreads = 1024, kRounds = 8;  // so that no block ends before the last has begun

__global__ void spoil(int words) {
  extern __shared__ unsigned shared[];
  for (int round = 0; round < kRounds; ++round) {
    for (int i = threadIdx.x; i < words; i += kThreads)
      reinterpret_cast<volatile unsigned*>(shared)[i] = kNaN;
    __syncthreads();
  }
}

__global__ void count_spoilt(int words, int* spoilt) {
  extern __shared__ unsigned shared[];
  for (int i = threadIdx.x; i < words; i += kThreads)
    if (reinterpret_cast<volatile unsigned*>(shared)[i] == kNaN) atomicAdd(spoilt, 1);
}

// That a block may ask for, which leave no room for another one.
int most_words() {
  return properties_of(current_device()).shared_bytes_of_block / static_cast<int>(sizeof(unsigned));
}

// A block for each processor.
template <typename... Arguments>
void launch(void (*kernel)(int, Arguments...), cudaStream_t stream, Arguments... arguments) {
  const int words = most_words(), bytes = words * static_cast<int>(sizeof(unsigned));
  RINGSIDE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<processors_of_device(), kThreads, bytes, stream>>>(words, arguments...);
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace

void spoil_shared_memory(cudaStream_t stream) {
  if (!kInterpreted) launch(spoil, stream);
}

namespace {

TEST(SharedMemory, IsWhatTheKernelBeforeLeftThere) {
  if (kInterpreted) GTEST_SKIP() << "blocks begin with NaN of the interpreter";
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  const DeviceMemory count(sizeof(int));
  auto* const spoilt = reinterpret_cast<int*>(count.data());
  RINGSIDE_CUDA(cudaMemset(spoilt, 0, sizeof(int)));
  spoil_shared_memory(nullptr);
  launch(count_spoilt, nullptr, spoilt);
  int found = 0;
  RINGSIDE_CUDA(cudaMemcpy(&found, spoilt, sizeof(int), cudaMemcpyDeviceToHost));
  // A block may meet a processor that another one has left.
  EXPECT_GE(found, most_words() * processors_of_device() / 2);
}

}  // namespace
}  // namespace ringside::testing
