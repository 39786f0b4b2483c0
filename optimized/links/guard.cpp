#include "optimized/links/guard.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace ringside {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

void watch(const std::stop_token& end, const std::function<Progress()>& progress,
           const std::function<void()>& give_up, double patience_s) {
  const auto patience = std::chrono::duration<double>(patience_s);
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  Progress seen;
  for (int64_t looks = 0; looks * kLookEvery <= patience; ++looks) {
    const Progress now = progress();
    if (now != seen || now.started == now.completed) looks = 0;
    seen = now;
    never.wait_for(lock, end, kLookEvery, [] { return false; });
    if (end.stop_requested()) return;
  }
  give_up();
}

}  // namespace

Guard::Guard(std::function<Progress()> progress, std::function<void()> give_up, double patience_s)
    : thread_([progress = std::move(progress), give_up = std::move(give_up), patience_s](
                  const std::stop_token& end) { watch(end, progress, give_up, patience_s); }) {}

}  // namespace ringside
