// Between processes of one host whose memory this one has mapped: the sender's copy engine writes
// into the receiver's workspace, once that has said that its buffers are free, and says so.
#pragma once

#include <memory>
#include <vector>

#include "optimized/links/communicator.h"
#include "optimized/links/shared_words.h"

namespace ringside {

class PeerCommunicator : public DeviceCommunicator {
 public:
  struct Peer {  // by process; this one among them
    std::shared_ptr<SharedWords> words;
    std::byte* workspace = nullptr;
  };
  PeerCommunicator(int mine, std::vector<Peer> peers);

  void set_workspace(int process, std::byte* workspace) { peers_[process].workspace = workspace; }
  void set_call(uint32_t token) override { call_ = token; }
  uint32_t* arrived(int process, int round) const override;
  void begin(int round, cudaStream_t stream) override;
  void send(int process, const DeviceRows& from, const Rows& to) override;
  void receive(int process, const DeviceRows& to) override;
  void end() override;
  void abort() override;  // whoever waits for a word gets it: to be called until streams are done

 private:
  struct Sent {
    DeviceRows from;
    Rows to;
  };
  void send_all(int process);

  int mine_;
  std::vector<Peer> peers_;
  std::vector<std::vector<Sent>> sent_;  // [process]
  std::vector<bool> receives_;           // [process]
  uint32_t call_ = 0;
  int round_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace ringside
