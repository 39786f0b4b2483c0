// Runs independent items on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace ringside {

// run(i) for i in [0, items), in any order; the calling thread helps. `run` must not throw.
template <typename Run>
void parallel_for(int items, Run run) {
  const int threads =
      std::min(items, std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int i = next++; i < items; i = next++) run(i);
  };
  std::vector<std::jthread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
}

}  // namespace ringside
