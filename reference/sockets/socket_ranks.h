// A communicator between ranks of several processes, of which this one hosts some.
//
// Two ranks of different processes have a connected stream socket, which carries all that they say
// to each other. Messages between ranks of this process are copies. Each hosted rank runs on a
// thread of its own and waits for all its sockets together, so that ranks which send to each other
// at once never wait for each other. Whoever aborts, or finds a socket closed, a peer silent or a
// message another than expected, ends the calls of all hosted ranks and closes the sockets, so that
// the other processes hear of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "reference/schedule/run/communicator.h"
#include "reference/sockets/socket_stream.h"

namespace ringside {

// A peer that closed, was silent for too long or is at another place.
struct PeerError : std::runtime_error {
  enum class Kind { elsewhere, silent };
  PeerError(const std::string& what, Kind kind_, std::vector<int> ranks_)
      : std::runtime_error(what), kind(kind_), ranks(std::move(ranks_)) {}
  Kind kind;
  std::vector<int> ranks;
};

class SocketRanks {
 public:
  struct Link {  // of a hosted rank to a rank of another process
    int rank, peer, fd;
  };
  struct Waiting {  // what a hosted rank does: in which step, and for whom it waits there
    int rank;
    int64_t step = -1;
    std::vector<int> peers;
  };

  SocketRanks(const std::vector<int>& hosted, const std::vector<Link>& links,
              std::chrono::milliseconds timeout);
  ~SocketRanks();

  const std::vector<int>& hosted() const { return hosted_; }
  void start(uint64_t call, uint64_t kind);  // of the messages from now on; no rank is exchanging
  Communicator& of_rank(int rank);           // to be used by one thread at a time

  // run(rank) for every hosted rank, on a thread each, the calling one among them. Throws what the
  // first of them threw for a reason of its own.
  void run(const std::function<void(int)>& run);

  void abort(const std::string& why);  // from any thread; for good
  std::optional<std::string> aborted() const;
  std::vector<Waiting> waiting() const;   // of every hosted rank
  std::optional<PeerError> lost() const;  // whom run() missed

 private:
  class Endpoint;
  struct Letter {
    MessageHeader header;
    std::vector<std::byte> data;
  };
  void throw_if_aborted() const;
  void lose(const PeerError& error);

  std::vector<int> hosted_;
  std::chrono::milliseconds timeout_;
  MessagePlace place_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Letter>> letters_;  // (from, to), both hosted
  std::optional<std::string> aborted_;
  std::optional<PeerError> lost_;
  int wake_[2];  // a pipe that can be read once there was an abort
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // of hosted_
};

}  // namespace ringside
