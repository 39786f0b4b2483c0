// Ctrl-C while the library computes without the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <utility>

#include "reference/interrupt.h"

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
// it: the result is gone, and what the handler raised is raised here.
template <typename Run>
auto without_gil(Run run) {
  Signals signals;
  try {
    const pybind11::gil_scoped_release release;
    std::optional<InterruptScope> scope;
    if (signals.handled_here()) scope.emplace([&signals] { return signals.should_stop(); });
    return run();
  } catch (const Interrupted&) {
    signals.raise();
  }
}

}  // namespace ringside::bindings
