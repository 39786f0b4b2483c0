// How a long computation is ended from outside.
//
// Long loops call check_interrupt(). It does nothing unless the thread is in an InterruptScope:
// that asks its owner, every 50 ms or so, whether to stop, and ends the computation with
// Interrupted. The threads that help (reference/support/parallel.h) share the scope; they never
// ask, they only hear of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <thread>

namespace ringside {

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted; nothing was computed") {}
};

// While it lives, what the constructing thread computes can be stopped. Scopes nest: an inner one
// answers alone, then the outer one is as it was.
class InterruptScope {
 public:
  static constexpr std::chrono::milliseconds kAskEvery{50};

  // should_stop() is called by the constructing thread only, and must not throw.
  explicit InterruptScope(std::function<bool()> should_stop);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  void look();  // asks if it is time to and raises Interrupted if it is time to stop

 private:
  std::function<bool()> should_stop_;
  std::thread::id owner_;
  std::chrono::steady_clock::time_point next_question_;
  std::atomic<bool> stopped_{false};
  InterruptScope* outer_;
  int64_t outer_steps_left_;
};

namespace interrupt {

inline constexpr int64_t kStepsOfLook = 1 << 14;  // simple operations, together far below 1 ms

struct Watched {  // what one thread computes for whom, and when it looks next
  InterruptScope* scope = nullptr;
  int64_t steps_left = 0;
};
extern constinit thread_local Watched watched;

// Makes a helping thread stop with the scope of the thread that it helps.
class Shared {
 public:
  explicit Shared(InterruptScope* scope) { watched = {scope, 0}; }
  ~Shared() { watched = {}; }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
};

}  // namespace interrupt

// Says that about so many simple operations have been or will be done since the last time. Raises
// Interrupted if they are no longer wanted.
inline void check_interrupt(int64_t steps = interrupt::kStepsOfLook) {
  using interrupt::watched;  // by its name: GCC 12 takes a reference to it for null under UBSan
  if (watched.scope == nullptr || (watched.steps_left -= steps) > 0) return;
  watched.steps_left = interrupt::kStepsOfLook;
  watched.scope->look();
}

}  // namespace ringside
