// What bends capped scores on a GPU, on the host: against the definition, and where it ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "optimized/attention/hopper/far_softcap.h"
#include "optimized/attention/hopper/near_softcap.h"

namespace ringside::hopper {
namespace {

struct NearScore {
  bool is_near;
  float bent;

  template <int kTerms>
  NearScore(const NearScores<kTerms>& near, float score) {
    float beyond[1], factors[1];
    near.find_factors(&score, beyond, factors);
    is_near = beyond[0] < 0, bent = score * factors[0];
  }
};

// Of a cap: how large beside it scores may be that are near, and what their logits may be wrong by:
// beside the cap, the cube of a score.
struct NearLimits {
  double bound, error_of_cap, error_of_cube;
};
// Of the bound itself, of what lies on both sides of it, and of all in between.
template <int kTerms>
void expect_definition(const NearScores<kTerms>& near, const NearRange<kTerms>& range, double scale,
                       double cap, const NearLimits& limits) {
  constexpr double kRounding = 4e-7;
  SCOPED_TRACE(testing::Message() << "scale " << scale << ", a cap of " << cap);
  ASSERT_LE(range.error, limits.error_of_cap);
  const double of_cap = range.error * cap;
  ASSERT_LE(of_cap, 1e-5);
  const auto check = [&](float score, bool is_near) {
    const NearScore got(near, score), of_opposite(near, -score);
    ASSERT_EQ(got.is_near, is_near) << score;
    ASSERT_EQ(of_opposite.is_near, is_near);
    ASSERT_EQ(of_opposite.bent, -got.bent);
    if (!is_near) return;
    const double x = scale * score / cap, want = cap * std::tanh(x) / std::log(2.);
    const double size = std::fabs(want);
    const double error =
        std::min(of_cap, limits.error_of_cube * cap * std::fabs(x * x * x)) / std::log(2.);
    ASSERT_NEAR(got.bent, want, error + kRounding * size) << score;
  };
  const double bound = limits.bound * cap / std::fabs(scale);
  for (int i = 0; i <= 4'000; ++i) check(static_cast<float>(bound * 0.99999 * i / 4'000), true);
  for (double score = bound / 2; score > 1e-30; score /= 3) check(static_cast<float>(score), true);
  for (const double times : {1.00001, 1.1, 4., 1e6, 1e30})
    check(static_cast<float>(bound * times), false);
}

TEST(NearSoftcap, IsThatOfTheDefinitionUpToTheBound) {
  constexpr NearLimits kLimits[] = {{0.9, 1.53e-6, 1.86e-4}, {0.84852813742385702, 8.7e-7, 1.24e-4},
                                    {0.8, 4.94e-7, 1.1e-4},  {0.75, 2.64e-7, 5.4e-5},
                                    {0.7, 1.34e-7, 3.4e-5},  {0.6, 2.83e-8, 3.1e-5}};
  const std::pair<double, NearLimits> limits_of_cap[] = {
      {5.6, kLimits[0]},  {6.53, kLimits[0]}, {6.54, kLimits[1]}, {11.4, kLimits[1]},
      {11.5, kLimits[2]}, {20.2, kLimits[2]}, {20.3, kLimits[3]}, {37.8, kLimits[3]},
      {37.9, kLimits[4]}, {50., kLimits[4]},  {74.6, kLimits[4]}, {74.7, kLimits[5]},
      {350., kLimits[5]}};
  for (const double scale : {1 / std::sqrt(128.), 1., -0.3, 25.})
    for (const auto& [cap, limits] : limits_of_cap) {
      const NearRange<5>* const range = near_range(cap);
      ASSERT_NE(range, nullptr) << "a cap of " << cap;
      expect_definition<5>(NearSoftcap(scale, cap), *range, scale, cap, limits);
    }
}

TEST(NearSoftcap, IsThatOfTheDefinitionWhereScoresAreSmall) {
  constexpr NearLimits kWidest{0.33911649915626341, 6.63e-7, 3.6e-4}, kNarrow{0.3, 2.87e-7, 2.2e-4},
      kLeast{0.25, 8.2e-8, 2.8e-4};
  const std::pair<double, NearLimits> limits_of_cap[] = {
      {12.1, kWidest}, {15., kWidest}, {15.1, kNarrow}, {34.8, kNarrow},
      {34.9, kLeast},  {50., kLeast},  {121., kLeast}};
  for (const double scale : {1 / std::sqrt(128.), 1., -0.3, 25.})
    for (const auto& [cap, limits] : limits_of_cap) {
      const NearRange<3>* const range = small_range(cap);
      ASSERT_NE(range, nullptr) << "a cap of " << cap;
      expect_definition<3>(NearSoftcap(scale, cap).small, *range, scale, cap, limits);
    }
}

// So that what is hidden weighs nothing.
TEST(NearSoftcap, LeavesThoseInfiniteThatAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const double cap : {13., 15., 30., 50., 100.})
    EXPECT_EQ(NearScore(NearSoftcap(0.1, cap).small, -infinity).bent, -infinity);
  for (const double cap : {6., 9., 13., 15., 30., 50., 100.})
    EXPECT_EQ(NearScore(NearSoftcap(0.1, cap), -infinity).bent, -infinity);
}

TEST(NearSoftcap, HasNoLessThanOneUnitOfTheCap) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> power(-7, 9);
  for (int i = 0; i < 100'000; ++i) {
    const double cap = std::exp2(power(random));
    const float units = FarSoftcap(0.1, cap).cap * NearSoftcap(0.1, cap).per_logit;
    ASSERT_TRUE(units >= 1 && units <= 1 + 0x1p-23f) << units << ", a cap of " << cap;
  }
}

TEST(NearSoftcap, LeavesInfinitiesAndKeepsNan) {
  const NearSoftcap near(0.1, 30);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(NearScore(near, infinity).is_near);
  EXPECT_FALSE(NearScore(near, -infinity).is_near);
  EXPECT_TRUE(std::isnan(NearScore(near, std::nanf("")).bent));
}

TEST(NearSoftcap, TakesNoneBesideALowOrALargeCap) {
  for (const double cap : {0.5, 5.6, 12., 122., 200., 1e4})
    EXPECT_FALSE(NearScore(NearSoftcap(0.1, cap).small, 1e-20f).is_near) << "of cap " << cap;
  for (const double cap : {0.5, 3., 5.5, 354., 1e4, 1e30})
    for (const float score : {0.f, 1e-20f, 1.f})
      EXPECT_FALSE(NearScore(NearSoftcap(0.1, cap), score).is_near) << score << " of cap " << cap;
}

TEST(NearSoftcap, TakesNoneWhereFloatsCannotHoldItsTerms) {
  for (const double scale : {0., 1e-12, 1e12, 1e-38})
    for (const float score : {0.f, 1e-20f, 1.f, 1e20f})
      for (const bool is_near : {NearScore(NearSoftcap(scale, 30), score).is_near,
                                 NearScore(NearSoftcap(scale, 30).small, score).is_near})
        EXPECT_FALSE(is_near) << score << " times " << scale;
}

// Of four scores, as kernels bend them; `shift` is the cap less what is taken off. Exponents err by
// two last places, quotients by one, as a GPU's do.
std::array<float, 4> bent_far(const FarSoftcap& far, const std::array<float, 4>& scores,
                              float shift, float last_places = 0) {
  constexpr float kLastPlace = 0x1p-23f;
  float four[4];
  for (int i = 0; i < 4; ++i) {
    const float power = std::exp2(std::min(scores[i], far.most) * far.power);
    four[i] = far.denominator(power * (1 + (i % 2 == 0 ? 2 : -2) * last_places * kLastPlace));
  }
  const FarSoftcap::Four quotients(four);
  const float all = quotients.of_all(), inverse = 1 / all * (1 + last_places * kLastPlace);
  EXPECT_TRUE(std::isnan(all) || (std::isnormal(all) && std::isnormal(inverse))) << all;
  quotients.bend(inverse, shift, four);
  return {four[0], four[1], four[2], four[3]};
}

void expect_bent(double scale, double cap, const std::array<float, 4>& scores) {
  constexpr double kErrorOfCap = 9e-7;
  const FarSoftcap far(scale, cap);
  ASSERT_TRUE(far.holds());
  const double logits = cap / std::log(2.);
  for (const float last_places : {0.f, 1.f, -1.f}) {
    const std::array<float, 4> bent = bent_far(far, scores, far.cap, last_places);
    for (int i = 0; i < 4; ++i)
      ASSERT_NEAR(bent[i], logits * std::tanh(scale * scores[i] / cap), kErrorOfCap * logits)
          << scale * scores[i] << " of cap " << cap;
  }
}

// Whatever the others of its four are.
TEST(FarSoftcap, IsThatOfTheDefinition) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> x(-9, 9), of_large(-40, 40);
  for (const double scale : {1 / std::sqrt(128.), 1., 25., 1e-12})
    for (const double cap : {0.003, 0.5, 2., 50., 125., 1e6})
      for (int i = 0; i < 5'000; ++i) {
        std::array<float, 4> scores;
        for (float& score : scores)
          score =
              static_cast<float>((random() % 4 == 0 ? of_large(random) : x(random)) * cap / scale);
        expect_bent(scale, cap, scores);
      }
}

// Products of four are as large and as small as they may be.
TEST(FarSoftcap, HoldsAtItsBounds) {
  for (const double cap : {0x1.001p-8 * std::log(2.), 0x1.ffep29 * std::log(2.)}) {
    const float most = FarSoftcap(1, cap).most;
    const float xs[] = {-INFINITY, 0, most / 2, most, INFINITY};
    for (int i = 0; i < 5 * 5 * 5 * 5; ++i)
      expect_bent(1, cap, {xs[i % 5], xs[i / 5 % 5], xs[i / 25 % 5], xs[i / 125]});
  }
}

TEST(FarSoftcap, EndsAtTheCap) {
  const FarSoftcap far(0.1, 50);
  const float infinity = std::numeric_limits<float>::infinity(), cap = far.cap;
  const std::array<float, 4> bent = bent_far(far, {infinity, 1e30f, -infinity, -1e30f}, cap);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(bent[i], i < 2 ? cap : -cap, 2e-7 * cap) << i;
}

TEST(FarSoftcap, MakesAllOfFourNanWithOne) {
  for (const float bent : bent_far(FarSoftcap(0.1, 50), {1, 2, std::nanf(""), 3}, 1))
    EXPECT_TRUE(std::isnan(bent));
}

TEST(FarSoftcap, SaysWhatFloatsDoNotHold) {
  for (const auto& [scale, cap] :
       {std::pair{1., 1e-3}, {1., 1e10}, {1e39, 1.}, {1e-40, 50.}, {0., 30.}, {-0.3, 30.}})
    EXPECT_FALSE(FarSoftcap(scale, cap).holds()) << scale << ", " << cap;
}

}  // namespace
}  // namespace ringside::hopper
