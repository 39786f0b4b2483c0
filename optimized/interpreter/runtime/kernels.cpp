// Kernels: what a file registers of them, and launches.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "optimized/interpreter/machine/run.h"
#include "optimized/interpreter/runtime/fat_binary.h"
#include "optimized/interpreter/runtime/graph.h"
#include "optimized/interpreter/runtime/runtime.h"

namespace ringside::ptx {
namespace {

constexpr size_t kMostShared = 232448;
constexpr unsigned kMostThreads = 1024, kMostBlocks = 65535;  // in y and z

struct Registered {
  const void* binary;
  std::string name;
  bool read = false;
};
struct Kernel {
  Registered* module;
  std::string name;
};
std::map<const void*, Kernel>& kernels() {
  static std::map<const void*, Kernel> known;
  return known;
}

// Threads take turns: to read a module's text, and to run what is in it.
std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

Function* function_of(const void* kernel) {
  const auto found = kernels().find(kernel);
  if (found == kernels().end()) return nullptr;
  Registered& module = *found->second.module;
  if (!module.read) {
    std::string text = ptx_of(module.binary);
    if (text.empty())
      fail("no PTX of " + found->second.name +
           "\nFix: compile for compute_90 or 90a, not for sm_90");
    add_module(module.name, std::move(text));
    module.read = true;
  }
  return find_kernel(module.name, found->second.name);
}

cudaError_t launch(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared) {
  std::unique_lock<std::mutex> lock(one_at_a_time());
  Function* f = function_of(kernel);
  if (f == nullptr) return note(cudaErrorInvalidDeviceFunction);
  const unsigned threads = block.x * block.y * block.z;
  if (threads == 0 || threads > kMostThreads || grid.x == 0 || grid.y - 1 >= kMostBlocks ||
      grid.z - 1 >= kMostBlocks)
    return note(cudaErrorInvalidConfiguration);
  if (f->static_shared + shared > kMostShared) return note(cudaErrorInvalidValue);
  std::vector<std::byte> values(f->parameter_bytes.size());
  for (size_t k = 0; k < f->parameters.size(); ++k) {
    const auto& [offset, bytes] = f->parameters[k];
    std::memcpy(values.data() + offset, arguments[k], bytes);
  }
  lock.unlock();
  enqueue(cudaGraphNodeTypeKernel, [=] {
    const std::lock_guard<std::mutex> in_turn(one_at_a_time());
    std::ranges::copy(values, f->parameter_bytes.begin());
    run({f, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared});
  });
  return cudaSuccess;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
std::vector<Configuration>& configurations() {
  static thread_local std::vector<Configuration> pushed;
  return pushed;
}

}  // namespace
}  // namespace ringside::ptx

using namespace ringside::ptx;  // NOLINT: the runtime's functions have its names

extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
  static int modules = 0;
  return reinterpret_cast<void**>(
      new Registered{binary, "module " + std::to_string(modules++)});  // of the process
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** module, const char* kernel, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  kernels()[kernel] = {reinterpret_cast<Registered*>(module), name};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configurations().push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Configuration last = configurations().back();
  configurations().pop_back();
  *grid = last.grid, *block = last.block, *shared = last.shared;
  *static_cast<void**>(stream) = last.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t) {
  return launch(kernel, grid, block, arguments, shared);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t) {
  return launch(kernel, grid, block, arguments, shared);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* kernel,
                                void** arguments) {
  return launch(kernel, how->gridDim, how->blockDim, arguments, how->dynamicSmemBytes);
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const std::lock_guard<std::mutex> lock(one_at_a_time());
  const Function* f = function_of(kernel);
  if (f == nullptr) return note(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->sharedSizeBytes = f->static_shared;
  attributes->maxThreadsPerBlock = kMostThreads;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}
}
