// Words in memory of the host that processes share: streams write them and wait for them, and any
// thread may read and write them without a call of CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace ringside {

class SharedWords {
 public:
  // Maps a file, which is made where it is not there, for the current device.
  SharedWords(const std::string& path, int64_t words, bool make);
  ~SharedWords();
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  int64_t size() const { return words_; }
  std::atomic_ref<uint32_t> operator[](int64_t i) const { return std::atomic_ref(host_[i]); }
  uint32_t* on_device(int64_t i) const { return device_ + i; }

 private:
  int64_t words_;
  uint32_t *host_ = nullptr, *device_ = nullptr;
};

// In the order of the stream; both can be captured in a graph.
void write_word(uint32_t* on_device, uint32_t value, cudaStream_t stream);
void wait_for_word(uint32_t* on_device, cudaStream_t stream);  // until it is odd

}  // namespace ringside
