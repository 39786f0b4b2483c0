// Memory and copies.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "optimized/interpreter/machine/device_memory.h"
#include "optimized/interpreter/runtime/graph.h"
#include "optimized/interpreter/runtime/runtime.h"

namespace ringside::ptx {
namespace {

bool on_device(const void* data, size_t bytes) {
  return is_allocated(data, bytes) || is_registered(reinterpret_cast<uint64_t>(data), bytes);
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const bool between = kind == cudaMemcpyDeviceToDevice;
  if (bytes == 0) return cudaSuccess;
  if (((between || kind == cudaMemcpyHostToDevice) && !on_device(to, bytes)) ||
      ((between || kind == cudaMemcpyDeviceToHost) && !on_device(from, bytes)))
    return note(cudaErrorInvalidValue);
  enqueue(cudaGraphNodeTypeMemcpy, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

}  // namespace
}  // namespace ringside::ptx

using namespace ringside::ptx;  // NOLINT: the runtime's functions have its names

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (const cudaError_t refused = refuse_in_capture(); refused != cudaSuccess) return refused;
  *data = bytes == 0 ? nullptr : allocate(bytes);
  return bytes > 0 && *data == nullptr ? note(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFree(void* data) {  // as long as a device with work under way takes
  std::this_thread::sleep_for(std::chrono::milliseconds(setting("FREE_MS", 0)));
  return data == nullptr || release(data) ? cudaSuccess : note(cudaErrorInvalidValue);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t refused = refuse_in_capture(); refused != cudaSuccess) return refused;
  return copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  return copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t) {
  for (size_t k = 0; k < height; ++k) {
    const cudaError_t error =
        copy(static_cast<std::byte*>(to) + k * to_pitch,
             static_cast<const std::byte*>(from) + k * from_pitch, width, kind);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t) {
  if (bytes > 0 && !on_device(data, bytes)) return note(cudaErrorInvalidValue);
  enqueue(cudaGraphNodeTypeMemset, [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  if (const cudaError_t refused = refuse_in_capture(); refused != cudaSuccess) return refused;
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  constexpr size_t kAlign = 256;
  *data = std::aligned_alloc(kAlign, (bytes / kAlign + 1) * kAlign);
  register_host(*data, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  unregister_host(data);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  register_host(data, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  unregister_host(data);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  *attributes = {};
  attributes->type = is_allocated(data, 1) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  attributes->devicePointer = const_cast<void*>(data);
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return note(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return note(cudaErrorNotSupported);
}
cudaError_t cudaIpcCloseMemHandle(void*) { return note(cudaErrorNotSupported); }
}
