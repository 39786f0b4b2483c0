// How messages cross ranks: the few verbs that a transport of data must have.
//
// begin(step), then sends and receives in the order of the schedule, then end(), which returns when
// every message of the group has been sent and has arrived. Both ends of a message name the same
// step of the plan. Nothing is promised to be buffered: a send may wait for its receive. Between
// two ranks, the n-th send meets the n-th receive. abort() makes every call of every rank that
// waits, or will, raise Aborted with the reason.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

namespace ringside {

struct Aborted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual void begin(int step) = 0;
  virtual void send(int to, std::span<const std::byte> data) = 0;  // valid until end()
  virtual void receive(int from, std::span<std::byte> data) = 0;   // complete after end()
  virtual void end() = 0;
  virtual void abort(const std::string& why) = 0;
};

}  // namespace ringside
