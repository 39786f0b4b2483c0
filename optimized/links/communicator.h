// How messages cross from process to process on devices: few verbs, enqueued on a stream.
//
// begin(round, stream), then sends and receives, then end(), which only enqueues: the stream goes
// on once all messages of the round have left and arrived. Every process posts the same rounds in
// the same order; between two processes, the n-th send of a round meets the n-th receive. What a
// round reads and writes is ready when its turn on the stream comes. abort() comes from any thread
// and frees streams that wait; nothing is right afterwards.
//
// With the rows of a round comes a token of the call and the round (mailbox.h), which the receiver
// compares at the end of the call: so messages of another call are no results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "optimized/tables/schedules/rank_memory.h"

namespace ringside {

struct DeviceRows {  // rows of equal width at a pitch, in bytes
  std::byte* data = nullptr;
  int64_t pitch = 0, width = 0;
  int rows = 0;

  bool dense() const { return rows <= 1 || pitch == width; }
  size_t bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(rows); }
};
inline DeviceRows at(std::byte* base, const Rows& rows) {
  return {base + rows.offset, rows.pitch, rows.width, rows.rows};
}
void copy_rows(const DeviceRows& from, const DeviceRows& to, cudaStream_t stream);

class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;
  virtual void set_call(uint32_t token) = 0;  // of the calls to come
  // Where the token of another process's round arrives; null where none does.
  virtual uint32_t* arrived(int process, int round) const = 0;
  virtual void begin(int round, cudaStream_t stream) = 0;
  virtual void send(int process, const DeviceRows& from, const Rows& to) = 0;  // in its workspace
  virtual void receive(int process, const DeviceRows& to) = 0;
  virtual void end() = 0;
  virtual void abort() = 0;
};

}  // namespace ringside
