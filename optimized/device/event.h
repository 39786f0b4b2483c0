// A point in the work of a stream for which others wait.
#pragma once

#include <utility>

#include "optimized/device/error.h"

namespace ringside {

class Event {
 public:
  Event() { RINGSIDE_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }

  void record(cudaStream_t stream) const { RINGSIDE_CUDA(cudaEventRecord(event_, stream)); }
  void hold(cudaStream_t stream) const { RINGSIDE_CUDA(cudaStreamWaitEvent(stream, event_, 0)); }
  bool has_happened() const {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) return false;
    RINGSIDE_CUDA(error);
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringside
