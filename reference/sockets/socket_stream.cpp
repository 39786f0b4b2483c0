#include "reference/sockets/socket_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "reference/support/errors.h"

namespace ringside {
namespace {

#ifdef MSG_NOSIGNAL
constexpr int kQuietly = MSG_DONTWAIT | MSG_NOSIGNAL;
#else
constexpr int kQuietly = MSG_DONTWAIT;  // SIGPIPE is for the program to ignore, as Python does
#endif

bool must_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

std::string words(const MessageHeader& x) {
  return concat(x.bytes, " bytes in step ", x.place.step, " of call ", x.place.call);
}

}  // namespace

std::string difference(int rank, int peer, const MessageHeader& expected,
                       const MessageHeader& got) {
  if (got == expected) return "";
  std::string text =
      concat("rank ", peer, " sends ", words(got), "; rank ", rank, " expected ", words(expected));
  if (got.place.kind != expected.place.kind) text += ", and of another kind";
  return text + ". Make the same calls in the same order on every rank";
}

SocketStream::SocketStream(int fd, int rank, int peer)
    : fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)), rank_(rank), peer_(peer) {
  require(fd_ >= 0, "the socket of rank ", rank, " to rank ", peer, " has descriptor ", fd, " (",
          std::strerror(errno), "); expected a connected stream socket");
}
SocketStream::~SocketStream() { close(fd_); }

void SocketStream::clear() {
  outgoing_.clear();
  incoming_.clear();
  sent_ = received_ = 0;
}

void SocketStream::send(const MessagePlace& place, std::span<const std::byte> data) {
  outgoing_.push_back({{place, data.size()}, data});
}
void SocketStream::receive(const MessagePlace& place, std::span<std::byte> data) {
  incoming_.push_back({{place, data.size()}, data});
}

bool SocketStream::move() {
  bool moved = false;
  while (problem_.empty() && sends() && push()) moved = true;
  while (problem_.empty() && receives() && pull()) moved = true;
  return moved;
}

bool SocketStream::push() {
  Outgoing& message = outgoing_.front();
  constexpr size_t kHeader = sizeof(MessageHeader);
  const size_t of_header = std::min(sent_, kHeader), of_data = sent_ - of_header;
  iovec parts[2] = {
      {reinterpret_cast<std::byte*>(&message.header) + of_header, kHeader - of_header},
      {const_cast<std::byte*>(message.data.data()) + of_data, message.data.size() - of_data}};
  msghdr both{};
  both.msg_iov = parts;
  both.msg_iovlen = 2;
  const ssize_t count = sendmsg(fd_, &both, kQuietly);
  if (count < 0) return must_wait(errno) ? false : fail(std::strerror(errno));
  sent_ += static_cast<size_t>(count);
  if (sent_ == kHeader + message.data.size()) {
    outgoing_.pop_front();
    sent_ = 0;
  }
  return count > 0;
}

bool SocketStream::pull() {
  Incoming& message = incoming_.front();
  constexpr size_t kHeader = sizeof(MessageHeader);
  bool moved = false;
  if (received_ < kHeader) {
    moved = pull_into(std::as_writable_bytes(std::span(&header_, 1)).subspan(received_));
    if (received_ < kHeader) return moved;
    problem_ = difference(rank_, peer_, message.expected, header_);
    if (!problem_.empty()) return false;
  }
  if (received_ < kHeader + message.data.size())
    moved = pull_into(message.data.subspan(received_ - kHeader)) || moved;
  if (received_ == kHeader + message.data.size()) {
    incoming_.pop_front();
    received_ = 0;
  }
  return moved;
}

bool SocketStream::pull_into(std::span<std::byte> rest) {
  const ssize_t count = recv(fd_, rest.data(), rest.size(), kQuietly);
  if (count < 0) return must_wait(errno) ? false : fail(std::strerror(errno));
  if (count == 0) return fail("end of stream");
  received_ += static_cast<size_t>(count);
  return true;
}

bool SocketStream::fail(const char* what) {
  problem_ = concat("rank ", peer_, " closed its connection to rank ", rank_, " (", what, ")");
  return false;
}

void SocketStream::shut_down() { shutdown(fd_, SHUT_RDWR); }

}  // namespace ringside
