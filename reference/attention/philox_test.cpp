// The generator against its published answers, and dropout against its promises.
#include "reference/attention/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ringside {
namespace {

void expect_words(const Philox& got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  EXPECT_EQ(got.word[0], a);
  EXPECT_EQ(got.word[1], b);
  EXPECT_EQ(got.word[2], c);
  EXPECT_EQ(got.word[3], d);
}

// The known answers that Random123 publishes for philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  expect_words(philox4x32_10({{0, 0, 0, 0}}, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  constexpr uint32_t kOnes = 0xffffffff;
  expect_words(philox4x32_10({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes), 0x408f276d, 0x41c83b0e,
               0xa20bc7c6, 0x6d5451fd);
  expect_words(
      philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
      0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Dropout, DropsAboutTheShareItSays) {
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    const Dropout dropout{p, 42};
    const int n = 40000;
    int kept = 0;
    for (int i = 0; i < n; ++i) kept += dropout.keeps(1, 2, i / 200, i % 200);
    // Six standard deviations of a binomial count.
    EXPECT_NEAR(kept, n * (1 - p), 6 * std::sqrt(n * p * (1 - p)) + 1e-9) << "p=" << p;
  }
}

TEST(Dropout, DependsOnEveryNameOfThePair) {
  const auto draws = [](uint64_t seed, int seq, int head, int shift_q, int shift_k) {
    std::vector<bool> kept;
    for (int i = 0; i < 256; ++i)
      kept.push_back(Dropout{0.5, seed}.keeps(seq, head, i / 16 + shift_q, i % 16 + shift_k));
    return kept;
  };
  const auto base = draws(7, 0, 0, 0, 0);
  EXPECT_EQ(base, draws(7, 0, 0, 0, 0));
  EXPECT_NE(base, draws(8, 0, 0, 0, 0));
  EXPECT_NE(base, draws(7 + (uint64_t{1} << 32), 0, 0, 0, 0));
  EXPECT_NE(base, draws(7, 1, 0, 0, 0));
  EXPECT_NE(base, draws(7, 0, 1, 0, 0));
  EXPECT_NE(base, draws(7, 0, 0, 1, 0));
  EXPECT_NE(base, draws(7, 0, 0, 0, 1));
}

}  // namespace
}  // namespace ringside
