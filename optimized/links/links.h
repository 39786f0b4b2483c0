// What a process of a group has on its device: a workspace into which others may write, words that
// the streams of all see, the stream on which messages travel, and a communicator.
//
// Calls are enqueued one at a time, in one order in all processes. begin_call() orders a call
// behind the one before, end_call() compares and counts.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "optimized/device/event.h"
#include "optimized/device/memory.h"
#include "optimized/links/call_words.h"
#include "optimized/links/communicator.h"
#include "optimized/links/guard.h"
#include "optimized/links/nccl_communicator.h"
#include "optimized/links/peer_communicator.h"
#include "optimized/links/shared_words.h"

namespace ringside {

class Links {
 public:
  // Of the current device. Makes the file of its words, which others may open.
  Links(int mine, int processes, const std::string& words_path);
  ~Links();

  // Room for calls. True where the workspace is another one: the others have to map that, and
  // what was there before stays until forget_workspace().
  bool reserve(int64_t bytes);
  void forget_workspace() { before_ = {}; }
  // Gives it back: first all processes unmap those of others, then each frees its own.
  void unmap_workspaces();
  void free_workspace();
  std::string workspace_handle() const;  // for map_workspace() of another process

  // Either of the two, once, in all processes.
  void meet_peers(const std::vector<std::string>& words_paths);
  void map_workspace(int process, const std::string& handle);
  // In its place where the other links are of this very process, as in tests.
  void reach_workspace(int process, const Links& other);
  void meet_nccl(const std::string& library, const std::string& id);

  int mine() const { return mine_; }
  int device() const { return device_; }
  bool uses_words() const { return peers_ != nullptr; }
  const SharedWords& words() const { return *words_; }
  std::byte* workspace() const { return workspace_.data(); }
  cudaStream_t stream() const { return stream_; }
  DeviceCommunicator* communicator() const;  // null where there is one process

  void begin_call(uint32_t token, std::byte* staging, int64_t staging_bytes, cudaStream_t stream);
  void end_call(const ExpectedWord* expected, int count, const std::vector<Spoilable>& results,
                cudaStream_t stream);

  // From any thread: frees the streams, spoils what is still to end.
  void abort();
  // From now on that happens of itself where a call stands still for so long; once.
  void guard(double patience_s);
  Progress progress() const;  // calls nothing of CUDA's
  bool is_idle() const { return last_.has_happened(); }

 private:
  void unmap(int process);
  bool is_first_abort();
  void release_streams();  // until the links are gone

  int mine_, processes_, device_;
  std::shared_ptr<SharedWords> words_;
  DeviceMemory workspace_, before_, unfit_;
  int64_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  Event last_;  // call
  std::unique_ptr<PeerCommunicator> peers_;
  std::unique_ptr<NcclCommunicator> nccl_;
  std::vector<void*> mapped_;  // by process
  std::atomic<bool> closing_ = false;
  std::thread release_;
  std::unique_ptr<Guard> guard_;
};

}  // namespace ringside
