// What random tests are seeded with: two thirds of all draws are other ones in every run, one third
// never changes. RINGSIDE_SEED=... repeats a run; every run prints its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>

namespace ringside::testing {

constexpr unsigned kFixedShare = 3;  // one case of so many

// The number that RINGSIDE_SEED holds, or a new one where it is not set (null).
inline uint32_t seed_from(const char* text) {
  if (text == nullptr) return std::random_device()();
  char* end = nullptr;
  const unsigned long long seed = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || seed > UINT32_MAX)
    throw std::invalid_argument("RINGSIDE_SEED=\"" + std::string(text) +
                                "\"; expected an integer from 0 to 4294967295");
  return static_cast<uint32_t>(seed);
}

inline uint32_t seed_of_run() {
  static const uint32_t seed = seed_from(std::getenv("RINGSIDE_SEED"));
  return seed;
}

// How many of so many cases a build with sanitizers draws: it takes ten times as long for each, and
// the same test without them draws all. No divisor of what small cases are counted by.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kSanitizedShare = 5;
#else
constexpr int kSanitizedShare = 1;
#endif
constexpr int cases(int all) { return all / kSanitizedShare; }

// Numbers of a test (or case) in this run; the same in every run where `number` is a multiple of
// kFixedShare, so that what was found once is looked at again.
inline std::mt19937 engine(unsigned number, uint32_t run = seed_of_run()) {
  if (number % kFixedShare == 0) return std::mt19937(number);
  std::seed_seq seeds{run, static_cast<uint32_t>(number)};
  return std::mt19937(seeds);
}

// Says in every log how to draw the same cases again, and says it once more where a test failed.
class TellsSeed : public ::testing::Environment {
  void SetUp() override { tell("Drawing anew"); }
  void TearDown() override {
    if (::testing::UnitTest::GetInstance()->Failed()) tell("To repeat the failure");
  }
  static void tell(const char* what) {
    std::printf("%s: RINGSIDE_SEED=%u\n", what, static_cast<unsigned>(seed_of_run()));
    std::fflush(stdout);
  }
};
inline ::testing::Environment* const kTellsSeed =
    ::testing::AddGlobalTestEnvironment(new TellsSeed);

}  // namespace ringside::testing
