// Between processes with a GPU each, over NCCL: grouped sends and receives. What is not dense is
// packed into a staging area, and unpacked from there. Words as in mailbox.h lie in memory of its
// own: `ready` of this process holds the token that it sends.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "optimized/device/memory.h"
#include "optimized/links/communicator.h"
#include "optimized/links/nccl_library.h"

namespace ringside {

class NcclCommunicator : public DeviceCommunicator {
 public:
  // Every process calls it; returns once all have.
  NcclCommunicator(const NcclLibrary& library, const NcclUniqueId& id, int processes, int mine);
  ~NcclCommunicator() override;

  void set_staging(std::byte* staging, int64_t bytes) { staging_ = staging, room_ = bytes; }
  // A byte to and from each, so that what connects does it now. On memory of two bytes.
  void connect(std::byte* two_bytes, cudaStream_t stream);

  void set_call(uint32_t token) override { call_ = token; }
  uint32_t* arrived(int process, int round) const override;
  void begin(int round, cudaStream_t stream) override;
  void send(int process, const DeviceRows& from, const Rows& to) override;
  void receive(int process, const DeviceRows& to) override;
  void end() override;
  void abort() override;

 private:
  struct Message {
    int process;
    DeviceRows given;  // by the caller
    std::byte* dense;  // there, or in the staging area
  };
  std::byte* dense_place(const DeviceRows& rows);
  int exchange_tokens() const;
  uint32_t* word(int64_t index) const { return reinterpret_cast<uint32_t*>(words_.data()) + index; }
  NcclComm comm() const;

  NcclLibrary library_;
  int processes_, mine_, round_ = 0;
  uint32_t call_ = 0;
  DeviceMemory words_;
  std::atomic<NcclComm> comm_ = nullptr;
  std::byte* staging_ = nullptr;
  int64_t room_ = 0, taken_ = 0;
  cudaStream_t stream_ = nullptr;
  std::vector<Message> sent_, received_;
};

}  // namespace ringside
