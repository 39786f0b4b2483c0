// Runs independent items on all processors that the process may use.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>

#include "reference/support/interrupt.h"

namespace ringside {

// How many processors the calling thread may run on: all, or those of its affinity (taskset, a
// job's share of a machine).
int usable_processors();

// Runs `work` on so many threads, the calling one among them. When all have ended, throws the first
// thing that one of them threw. A call that is interrupted (reference/support/interrupt.h) ends in
// all.
void run_together(int threads, const std::function<void()>& work);

// run(i) for i in [0, items), in any order; the calling thread helps. Once a run has thrown, no
// other is begun, and its exception is thrown here.
template <typename Run>
void parallel_for(int items, Run run) {
  const int threads = std::min(items, usable_processors());
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  run_together(threads, [&] {
    try {
      for (int i = next++; i < items && !failed; i = next++) {
        check_interrupt(1);
        run(i);
      }
    } catch (...) {
      failed = true;
      throw;
    }
  });
}

}  // namespace ringside
