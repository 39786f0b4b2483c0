// The order of keys is that of floats, and every float comes back.
#include "optimized/tables/ordered_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reference/test_support/test_seed.h"

namespace ringside {
namespace {

std::vector<float> special_floats() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> all;
  for (const float x : {0.0f, Limits::denorm_min(), Limits::min(), 1.0f, 1.0f + Limits::epsilon(),
                        Limits::max(), Limits::infinity()})
    all.insert(all.end(), {x, -x});
  return all;
}

void expect_same_order(float a, float b) {
  if (a != b) {
    EXPECT_EQ(a < b, ordered_key(a) < ordered_key(b)) << a << " and " << b;
  }
}

TEST(OrderedFloat, KeysHaveTheOrderOfFloats) {
  for (const float a : special_floats())
    for (const float b : special_floats()) expect_same_order(a, b);
  std::mt19937 random = testing::engine(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float a = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const float b = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(a) && !std::isnan(b)) expect_same_order(a, b);
  }
}

TEST(OrderedFloat, NaNIsTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float x : special_floats()) EXPECT_LT(ordered_key(x), ordered_key(nan)) << x;
  EXPECT_TRUE(std::isnan(from_ordered_key(ordered_key(nan))));
}

TEST(OrderedFloat, EveryFloatComesBack) {
  for (const float x : special_floats())
    EXPECT_EQ(std::bit_cast<uint32_t>(from_ordered_key(ordered_key(x))),
              std::bit_cast<uint32_t>(x));
}

}  // namespace
}  // namespace ringside
