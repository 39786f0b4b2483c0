// A communicator between ranks of one process, each on a thread of its own. No message is buffered:
// the receiver copies from where the sender's data lie, so that whoever forgets a wait is seen.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "reference/schedule/run/communicator.h"

namespace ringside {

class VirtualRanks {
 public:
  explicit VirtualRanks(int cp_size);
  ~VirtualRanks();

  Communicator& of_rank(int rank);  // to be used by one thread at a time

 private:
  class Endpoint;
  struct Posted {
    std::span<const std::byte> data;
    bool* taken;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::deque<Posted>>> sent_;  // [from][to]
  std::optional<std::string> aborted_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace ringside
