// Device memory that frees itself, and tables that are made on the host and read on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "optimized/device/error.h"

namespace ringside {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(int64_t bytes) {
    if (bytes > 0) RINGSIDE_CUDA(cudaMalloc(&data_, static_cast<size_t>(bytes)));
  }
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceMemory() {
    if (data_) static_cast<void>(cudaFree(data_));  // a destructor does not throw
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

// A stream of its own, which neither waits for the work of others nor is waited for.
class PrivateStream {
 public:
  PrivateStream() { RINGSIDE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  PrivateStream(const PrivateStream&) = delete;
  PrivateStream& operator=(const PrivateStream&) = delete;
  ~PrivateStream() { static_cast<void>(cudaStreamDestroy(stream_)); }

  operator cudaStream_t() const { return stream_; }
  void wait() const { RINGSIDE_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Sizes first, addresses later: what take() returns is an offset into one allocation.
class Arena {
 public:
  static constexpr int64_t kAlignment = 256;  // of offsets, and of where the allocation begins

  int64_t take(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

template <typename T>
struct TableOf {  // rows of a table in DeviceTables
  int64_t offset = 0;
  int size = 0;
  bool is_reserved = false;  // and filled on the device; else uploaded
};

// Any number of tables, uploaded together, once; and others that are filled on the device.
class DeviceTables {
 public:
  template <typename T>
  TableOf<T> add(const std::vector<T>& rows) {
    const int64_t offset = arena_.take(static_cast<int64_t>(rows.size() * sizeof(T)));
    host_.resize(static_cast<size_t>(arena_.bytes()));
    if (!rows.empty()) std::memcpy(host_.data() + offset, rows.data(), rows.size() * sizeof(T));
    return {offset, static_cast<int>(rows.size())};
  }

  template <typename T>
  TableOf<T> reserve(int64_t size) {
    return {reserved_arena_.take(size * static_cast<int64_t>(sizeof(T))), static_cast<int>(size),
            true};
  }

  // Allocates what was reserved, zeros: kernels look at rows before they know how many there are.
  // at() is then good for it.
  void allocate() {
    reserved_ = DeviceMemory(reserved_arena_.bytes());
    const PrivateStream stream;
    RINGSIDE_CUDA(
        cudaMemsetAsync(reserved_.data(), 0, static_cast<size_t>(reserved_arena_.bytes()), stream));
    stream.wait();
  }

  // When it returns, every stream finds the rows: cudaMemcpy alone returns once pageable memory has
  // been read, and a stream that does not wait for the default one may be early.
  void upload() {
    device_ = DeviceMemory(static_cast<int64_t>(host_.size()));
    const PrivateStream stream;
    RINGSIDE_CUDA(cudaMemcpyAsync(device_.data(), host_.data(), host_.size(),
                                  cudaMemcpyHostToDevice, stream));
    stream.wait();
    host_ = {};
  }

  template <typename T>
  T* at(TableOf<T> table) const {
    const DeviceMemory& memory = table.is_reserved ? reserved_ : device_;
    return reinterpret_cast<T*>(memory.data() + table.offset);
  }

 private:
  Arena arena_, reserved_arena_;
  std::vector<std::byte> host_;
  DeviceMemory device_, reserved_;
};

}  // namespace ringside
