// The device, its streams and events, errors, and what the driver gives by name.
#include <cuda.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

#include "optimized/interpreter/machine/code.h"
#include "optimized/interpreter/machine/tensor_map.h"
#include "optimized/interpreter/runtime/graph.h"
#include "optimized/interpreter/runtime/runtime.h"

namespace ringside::ptx {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

int capability() { return static_cast<int>(setting("CAPABILITY", 90)); }
int processors() { return static_cast<int>(setting("PROCESSORS", 4)); }
int devices() { return static_cast<int>(setting("DEVICES", 1)); }  // alike, of one memory

bool fits_a_map(const TensorMap& map, const cuuint32_t* steps) {
  constexpr uint64_t kMostSize = uint64_t{1} << 32, kMostStride = uint64_t{1} << 40;
  for (size_t k = 0; k < map.rank; ++k) {
    const bool far = k > 0 && (map.stride[k] % 16 != 0 || map.stride[k] >= kMostStride);
    if (map.size[k] == 0 || map.size[k] > kMostSize || map.box[k] == 0 || map.box[k] > 256 ||
        steps[k] != 1 || far)
      return false;
  }
  const int line = map.box[0] * map.element_bytes;
  const int longest = map.swizzle_bits == 0 ? line : (map.swizzle_bits + 1) * 16;
  return map.data != nullptr && reinterpret_cast<uintptr_t>(map.data) % 16 == 0 && line % 16 == 0 &&
         line <= longest;
}

CUresult encode(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* data,
                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  const bool is_float = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const bool is_half =
      type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if ((!is_float && !is_half) || rank < 1 || rank > 5 || interleave != 0 || fill != 0 ||
      swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
    return CUDA_ERROR_INVALID_VALUE;
  TensorMap map{};
  map.mark = kMapMark;
  map.data = static_cast<std::byte*>(data);
  map.rank = static_cast<uint8_t>(rank);
  map.element_bytes = is_float ? 4 : 2;
  map.swizzle_bits = static_cast<uint8_t>((1 << swizzle) - 1);
  for (size_t k = 0; k < rank; ++k) {
    map.size[k] = sizes[k];
    map.stride[k] = k == 0 ? map.element_bytes : strides[k - 1];
    map.box[k] = static_cast<uint16_t>(box[k]);
  }
  if (!fits_a_map(map, steps)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(to, 0, sizeof *to);
  std::memcpy(to, &map, sizeof map);
  return CUDA_SUCCESS;
}

// Of the driver alone.
constexpr auto kOfWords = static_cast<cudaGraphNodeType>(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);

CUresult write_word(CUstream, CUdeviceptr word, cuuint32_t value, unsigned) {
  enqueue(kOfWords,
          [=] { __atomic_store_n(reinterpret_cast<uint32_t*>(word), value, __ATOMIC_SEQ_CST); });
  return CUDA_SUCCESS;
}
CUresult wait_for_word(CUstream, CUdeviceptr word, cuuint32_t bits, unsigned flags) {
  if (flags != CU_STREAM_WAIT_VALUE_AND) return CUDA_ERROR_NOT_SUPPORTED;
  enqueue(kOfWords, [=] {
    const auto* at = reinterpret_cast<const uint32_t*>(word);
    while ((__atomic_load_n(at, __ATOMIC_SEQ_CST) & bits) == 0) std::this_thread::yield();
  });
  return CUDA_SUCCESS;
}

using Clock = std::chrono::steady_clock;

struct Point {  // of a stream, or a stream: what is asked of one has been done
  Clock::time_point recorded;
};

template <typename Handle>
cudaError_t make(Handle* handle) {
  *handle = reinterpret_cast<Handle>(new Point);
  return cudaSuccess;
}
template <typename Handle>
cudaError_t destroy(Handle handle) {
  delete reinterpret_cast<Point*>(handle);
  return cudaSuccess;
}

}  // namespace

cudaError_t note(cudaError_t error) { return last_error = error; }

void* driver_function(const char* name) {
  const std::string_view wanted = name;
  if (wanted == "cuTensorMapEncodeTiled")
    return setting("TENSOR_MAPS", 1) != 0 ? reinterpret_cast<void*>(encode) : nullptr;
  if (wanted == "cuStreamWriteValue32") return reinterpret_cast<void*>(write_word);
  if (wanted == "cuStreamWaitValue32") return reinterpret_cast<void*>(wait_for_word);
  return nullptr;
}

}  // namespace ringside::ptx

using namespace ringside::ptx;  // NOLINT: the runtime's functions have its names

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaError of the interpreter";
}
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "error %d", static_cast<int>(error));
  return text.data();
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return note(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = processors();
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = capability() / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = capability() % 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 232448;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 50 << 20;
      break;
    case cudaDevAttrMemoryClockRate:  // of an H100; on this bus, one of 3'800'000 is an H200's rate
      *value = static_cast<int>(setting("MEMORY_KHZ", 2'619'000));
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 5120;
      break;
    default:
      fail("unknown attribute of a device: " + std::to_string(static_cast<int>(attribute)));
  }
  return cudaSuccess;
}
// Of each device, which says nothing else by this way: who it is.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= devices()) return note(cudaErrorInvalidDevice);
  *properties = {};
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = driver_function(name);
  *found = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return make(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return make(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return destroy(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return refuse_in_capture(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return refuse_in_capture(); }
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  enqueue(cudaGraphNodeTypeHost, [=] { function(data); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return make(event); }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return make(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return destroy(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  reinterpret_cast<Point*>(event)->recorded = Clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
// Of the interpreter: nothing here tells how long a GPU takes.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto took =
      reinterpret_cast<Point*>(end)->recorded - reinterpret_cast<Point*>(begin)->recorded;
  *milliseconds = std::chrono::duration<float, std::milli>(took).count();
  return cudaSuccess;
}
}
