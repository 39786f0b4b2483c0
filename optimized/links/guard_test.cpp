// Who gives up calls that stand still, and who does not.
#include "optimized/links/guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ringside {
namespace {

constexpr double kPatience = 0.5;  // s

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

struct Call {
  std::atomic<uint32_t> started = 0, completed = 0, step = 0;
  std::atomic<int> given_up = 0;

  Guard guarded() {
    return {[this] {
              return Progress{started, completed, step};
            },
            [this] { ++given_up; }, kPatience};
  }
};

TEST(Guard, GivesUpOnceWhatStandsStill) {
  Call call;
  const Guard guard = call.guarded();
  call.started = 3, call.completed = 2;
  sleep(0.1);
  EXPECT_EQ(call.given_up, 0);
  for (int i = 0; i < 200 && call.given_up == 0; ++i) sleep(0.1);
  sleep(kPatience);
  EXPECT_EQ(call.given_up, 1);
}

TEST(Guard, LeavesAloneWhatHasEndedOrMoves) {
  Call ended, goes_on;
  ended.started = ended.completed = 5;
  goes_on.started = 1;
  const Guard of_ended = ended.guarded(), of_other = goes_on.guarded();
  for (int i = 0; i < 150; ++i) {
    ++goes_on.step;
    sleep(0.01);
  }
  EXPECT_EQ(ended.given_up, 0);
  EXPECT_EQ(goes_on.given_up, 0);
}

TEST(Guard, EndsAtOnceAndAsksNobodyAnyMore) {
  Call call;
  call.started = 1;
  const auto begin = std::chrono::steady_clock::now();
  { const Guard guard = call.guarded(); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(kPatience));
  sleep(1.5 * kPatience);
  EXPECT_EQ(call.given_up, 0);
}

}  // namespace
}  // namespace ringside
