// Messages in order on one connected stream socket, which sends and receives without waiting.
//
// Each message has a header: in which call and step it is sent, and how many bytes follow. The
// receiver compares it with what it expects, so that ends which are not at the same place never
// take one message for another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

namespace ringside {

struct MessagePlace {
  uint64_t call = 0;  // of the group, counted
  uint64_t kind = 0;  // of the call: a hash of all on which ranks have to agree
  int64_t step = 0;   // of the plan
  bool operator==(const MessagePlace&) const = default;
};

struct MessageHeader {
  MessagePlace place;
  uint64_t bytes = 0;
  bool operator==(const MessageHeader&) const = default;
};

// "got X; expected Y" of two headers that differ, empty where they are equal.
std::string difference(int rank, int peer, const MessageHeader& expected, const MessageHeader& got);

class SocketStream {
 public:
  SocketStream(int fd, int rank, int peer);  // owns a duplicate of fd
  ~SocketStream();
  SocketStream(const SocketStream&) = delete;
  SocketStream& operator=(const SocketStream&) = delete;

  int fd() const { return fd_; }
  int rank() const { return rank_; }
  int peer() const { return peer_; }

  void clear();  // forgets what has not gone and has not come
  void send(const MessagePlace& place, std::span<const std::byte> data);  // valid until it is gone
  void receive(const MessagePlace& place, std::span<std::byte> data);
  bool sends() const { return !outgoing_.empty(); }
  bool receives() const { return !incoming_.empty(); }

  // Moves what can be moved now. problem(): why no more ever will, or empty.
  bool move();  // whether a byte moved
  const std::string& problem() const { return problem_; }

  void shut_down();  // both ends see the stream closed; from any thread

 private:
  struct Outgoing {
    MessageHeader header;
    std::span<const std::byte> data;
  };
  struct Incoming {
    MessageHeader expected;
    std::span<std::byte> data;
  };
  bool push();
  bool pull();
  bool pull_into(std::span<std::byte> rest);
  bool fail(const char* what);

  int fd_, rank_, peer_;
  std::deque<Outgoing> outgoing_;
  std::deque<Incoming> incoming_;
  size_t sent_ = 0, received_ = 0;  // bytes of the first message, its header included
  MessageHeader header_;            // of the first message that comes
  std::string problem_;
};

}  // namespace ringside
