#include "optimized/links/shared_words.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "optimized/device/error.h"

namespace ringside {
namespace {

void* map_file(const std::string& path, size_t bytes, bool make) {
  const int fd = open(path.c_str(), O_RDWR | (make ? O_CREAT | O_EXCL : 0) | O_CLOEXEC, 0600);
  require(fd >= 0, path, ": ", std::strerror(errno), "; expected a file in memory (/dev/shm)");
  const bool sized = !make || ftruncate(fd, static_cast<off_t>(bytes)) == 0;
  void* found =
      sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int error = errno;
  close(fd);
  require(found != MAP_FAILED, path, ": ", std::strerror(error), "; expected ", bytes,
          " bytes of memory");
  return found;
}

// Of the driver that the runtime has loaded: nothing is linked against it.
template <typename Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  RINGSIDE_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
#else
  RINGSIDE_CUDA(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess) throw CudaError(concat("the driver has no ", name));
  return reinterpret_cast<Function>(found);
}

using OnWord = CUresult(CUDAAPI*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

void call_on_word(OnWord function, const char* name, uint32_t* word, uint32_t value, unsigned flags,
                  cudaStream_t stream) {
  const CUresult result = function(stream, reinterpret_cast<CUdeviceptr>(word), value, flags);
  if (result != CUDA_SUCCESS) throw CudaError(concat(name, ": error ", static_cast<int>(result)));
}

}  // namespace

SharedWords::SharedWords(const std::string& path, int64_t words, bool make) : words_(words) {
  const size_t bytes = static_cast<size_t>(words) * sizeof(uint32_t);
  host_ = static_cast<uint32_t*>(map_file(path, bytes, make));
  void* device = nullptr;
  cudaError_t error =
      cudaHostRegister(host_, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (error == cudaSuccess) error = cudaHostGetDevicePointer(&device, host_, 0);
  if (error != cudaSuccess) munmap(host_, bytes);
  RINGSIDE_CUDA(error);
  device_ = static_cast<uint32_t*>(device);
}

SharedWords::~SharedWords() {
  static_cast<void>(cudaHostUnregister(host_));
  munmap(host_, static_cast<size_t>(words_) * sizeof(uint32_t));
}

void write_word(uint32_t* on_device, uint32_t value, cudaStream_t stream) {
  static const auto function = driver_function<OnWord>("cuStreamWriteValue32");
  call_on_word(function, "cuStreamWriteValue32", on_device, value, CU_STREAM_WRITE_VALUE_DEFAULT,
               stream);
}

void wait_for_word(uint32_t* on_device, cudaStream_t stream) {
  static const auto function = driver_function<OnWord>("cuStreamWaitValue32");
  call_on_word(function, "cuStreamWaitValue32", on_device, 1, CU_STREAM_WAIT_VALUE_AND, stream);
}

}  // namespace ringside
