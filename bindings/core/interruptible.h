// Ctrl-C while the library computes without the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <utility>

#include "reference/support/interrupt.h"

namespace ringside::bindings {

// Lets Python handle its signals now and then. It does so on its main thread alone, so calls from
// others are not asked.
class Signals {
 public:
  Signals() {
    const auto main = pybind11::module_::import("threading").attr("main_thread")();
    handled_here_ = main.attr("ident").cast<unsigned long>() == PyThread_get_thread_ident();
  }

  bool handled_here() const { return handled_here_; }
  bool raised() const { return raised_.has_value(); }

  // Runs the handlers that are due, and keeps what one of them raises.
  bool should_stop() {
    const pybind11::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) return false;
    raised_.emplace();
    return true;
  }

  [[noreturn]] void raise() { throw std::move(raised_).value(); }

 private:
  bool handled_here_;
  std::optional<pybind11::error_already_set> raised_;
};

// run() without the interpreter lock. A signal handler that raises, as that of Ctrl-C does, ends
// it: the result is gone, and what the handler raised is raised here. Where ended() says that
// another thread ended it, that is Interrupted.
template <typename Ended, typename Run>
auto without_gil_until(Ended ended, Run run) {
  Signals signals;
  try {
    const pybind11::gil_scoped_release release;
    const InterruptScope scope(
        [&] { return ended() || (signals.handled_here() && signals.should_stop()); });
    return run();
  } catch (const Interrupted&) {
    if (!signals.raised()) throw;
    signals.raise();
  }
}

// The same for what nobody else ends.
template <typename Run>
auto without_gil(Run run) {
  return without_gil_until([] { return false; }, run);
}

}  // namespace ringside::bindings
