#include "reference/support/interrupt.h"

#include <utility>

namespace ringside {
namespace interrupt {

constinit thread_local Watched watched;

}  // namespace interrupt

InterruptScope::InterruptScope(std::function<bool()> should_stop)
    : should_stop_(std::move(should_stop)),
      owner_(std::this_thread::get_id()),
      next_question_(std::chrono::steady_clock::now() + kAskEvery),
      outer_(interrupt::watched.scope),
      outer_steps_left_(interrupt::watched.steps_left) {
  interrupt::watched = {this, 0};
}

InterruptScope::~InterruptScope() { interrupt::watched = {outer_, outer_steps_left_}; }

void InterruptScope::look() {
  if (!stopped_ && std::this_thread::get_id() == owner_) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_question_) return;
    stopped_ = should_stop_();
    next_question_ = std::chrono::steady_clock::now() + kAskEvery;
  }
  if (stopped_) throw Interrupted();
}

}  // namespace ringside
