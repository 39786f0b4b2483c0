#include "reference/support/parallel.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ringside {
namespace {

class Team {
 public:
  explicit Team(const std::function<void()>& work) : work_(work) {}

  void start(int helpers) {
    InterruptScope* const scope = interrupt::watched.scope;
    working_ = helpers;
    for (int t = 0; t < helpers; ++t)
      threads_.emplace_back([this, scope] {
        const interrupt::Shared shared(scope);
        take_part();
        const std::lock_guard lock(mutex_);
        if (--working_ == 0) all_done_.notify_one();
      });
  }

  void take_part() { keep_failure(work_); }

  // The thread that waits is the one that may ask whether to stop: it goes on asking.
  void wait() {
    for (std::unique_lock lock(mutex_); working_ > 0;) {
      if (all_done_.wait_for(lock, InterruptScope::kAskEvery, [this] { return working_ == 0; }))
        return;
      lock.unlock();
      keep_failure([] { check_interrupt(); });
      lock.lock();
    }
  }

  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  template <typename Act>
  void keep_failure(Act act) {
    try {
      act();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  const std::function<void()>& work_;
  std::mutex mutex_;
  std::condition_variable all_done_;
  int working_ = 0;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;  // last, so that all have ended before the rest goes
};

}  // namespace

int usable_processors() {
#ifdef __linux__
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) == 0) return CPU_COUNT(&usable);
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void run_together(int threads, const std::function<void()>& work) {
  Team team(work);
  if (threads > 1) team.start(threads - 1);
  if (threads > 0) team.take_part();
  team.wait();
  team.rethrow_failure();
}

}  // namespace ringside
