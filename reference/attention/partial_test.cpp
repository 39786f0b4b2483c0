// The merge laws. A result is (out, lse); merging two must be what attention over both sets of keys
// gives: out = (e^a x + e^b y) / (e^a + e^b), lse = log(e^a + e^b).
#include "reference/attention/partial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reference/attention/tensor.h"
#include "reference/test_support/test_seed.h"

namespace ringside {
namespace {

template <typename T>
class Merge : public ::testing::Test {
 protected:
  struct Result {
    T out, lse;
    bool operator==(const Result&) const = default;
  };
  static constexpr T kInf = std::numeric_limits<T>::infinity();
  static constexpr T kHuge = std::numeric_limits<T>::max();
  static constexpr T kEps = std::numeric_limits<T>::epsilon();
  static constexpr Result kEmpty{0, -kInf};

  static Result merge(const Result& a, const Result& b) {
    const MergeWeights<T> w = merge_weights(a.lse, b.lse);
    return {w.a * a.out + w.b * b.out, w.lse};
  }
  static void expect_near(const Result& want, const Result& got) {
    const auto close = [](T x, T y) {
      return x == y || std::abs(x - y) <= 16 * kEps * std::max(T(1), std::abs(x));
    };
    EXPECT_TRUE(close(want.out, got.out)) << want.out << " " << got.out;
    EXPECT_TRUE(close(want.lse, got.lse)) << want.lse << " " << got.lse;
  }
  template <typename Visit>  // visit(a, b, c); some are empty
  void for_random_triples(Visit visit) {
    std::mt19937 random = testing::engine(4);
    std::normal_distribution<double> normal;
    const auto draw = [&]() -> Result {
      if (random() % 4 == 0) return kEmpty;
      return {static_cast<T>(normal(random)), static_cast<T>(20 * normal(random))};
    };
    for (int i = 0; i < 1000; ++i) {
      const Result a = draw(), b = draw(), c = draw();
      visit(a, b, c);
    }
  }
};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Merge, Floats);

TYPED_TEST(Merge, IsAttentionOverBothSetsOfKeys) {
  this->for_random_triples([&](auto a, auto b, auto) {
    if (a.lse == -this->kInf || b.lse == -this->kInf) return;
    const long double ea = std::exp(static_cast<long double>(a.lse));
    const long double eb = std::exp(static_cast<long double>(b.lse));
    this->expect_near({static_cast<TypeParam>((ea * a.out + eb * b.out) / (ea + eb)),
                       static_cast<TypeParam>(std::log(ea + eb))},
                      this->merge(a, b));
  });
}

TYPED_TEST(Merge, IsCommutative) {
  this->for_random_triples([&](auto a, auto b, auto) {
    const auto ab = merge_weights(a.lse, b.lse), ba = merge_weights(b.lse, a.lse);
    EXPECT_EQ(ab.a, ba.b);  // to the bit; a fused multiply-add may still round out either way
    EXPECT_EQ(ab.b, ba.a);
    EXPECT_EQ(ab.lse, ba.lse);
    this->expect_near(this->merge(a, b), this->merge(b, a));
  });
}

TYPED_TEST(Merge, IsAssociative) {
  this->for_random_triples([&](auto a, auto b, auto c) {
    this->expect_near(this->merge(this->merge(a, b), c), this->merge(a, this->merge(b, c)));
  });
}

TYPED_TEST(Merge, SawNothingIsTheIdentity) {
  this->for_random_triples([&](auto a, auto, auto) {
    EXPECT_EQ(this->merge(a, this->kEmpty), a);
    EXPECT_EQ(this->merge(this->kEmpty, a), a);
  });
  for (const TypeParam lse : {this->kHuge, -this->kHuge, TypeParam(700), TypeParam(-700)}) {
    EXPECT_EQ(this->merge({3, lse}, this->kEmpty), (typename TestFixture::Result{3, lse}));
    EXPECT_EQ(this->merge(this->kEmpty, {3, lse}), (typename TestFixture::Result{3, lse}));
  }
}

TYPED_TEST(Merge, TwoEmptiesAreEmptyNotNan) {
  EXPECT_EQ(this->merge(this->kEmpty, this->kEmpty), this->kEmpty);
}

TYPED_TEST(Merge, AddingToEveryScoreAddsToLseOnly) {
  for (const TypeParam shift : {-700, -64, 64, 700})  // exact in both types
    for (const TypeParam b : {-3, 0, 2}) {
      const auto plain = this->merge({1, 0}, {5, b}),
                 shifted = this->merge({1, shift}, {5, b + shift});
      EXPECT_EQ(plain.out, shifted.out);
      EXPECT_NEAR(plain.lse + shift, shifted.lse, 1024 * this->kEps);
    }
}

TYPED_TEST(Merge, NeitherOverflowsNorUnderflows) {
  const auto expect = [&](auto want, auto got) { EXPECT_EQ(want, got); };
  using R = typename TestFixture::Result;
  expect(R{1, this->kHuge}, this->merge({1, this->kHuge}, {5, -this->kHuge}));
  expect(R{5, 700}, this->merge({1, -700}, {5, 700}));
  expect(R{3, this->kHuge}, this->merge({1, this->kHuge}, {5, this->kHuge}));
  this->expect_near({3, -700 + std::log(TypeParam(2))}, this->merge({1, -700}, {5, -700}));
}

TEST(Partial, StartsAsTheIdentity) {
  const Partial partial(2, 3, 4);
  EXPECT_EQ(partial.out.data, std::vector<double>(2 * 3 * 4, 0.0));
  EXPECT_EQ(partial.lse.data, std::vector<double>(2 * 3, kNegInf));
}

TEST(Partial, MergesOneRowOfOneHeadAndNoOther) {
  Partial partial(2, 2, 3);
  const double x[] = {1, 2, 3}, y[] = {3, 6, 9};
  partial.merge(1, 0, x, 0.0);
  partial.merge(1, 0, y, std::log(3.0));
  const double want[] = {2.5, 5, 7.5};  // (1*x + 3*y) / 4
  for (int d = 0; d < 3; ++d) EXPECT_DOUBLE_EQ(partial.out.at(1, 0)[d], want[d]);
  EXPECT_DOUBLE_EQ(*partial.lse.at(1, 0), std::log(4.0));
  for (const auto& [row, head] : {std::pair{0, 0}, {0, 1}, {1, 1}}) {
    EXPECT_EQ(*partial.lse.at(row, head), kNegInf);
    for (int d = 0; d < 3; ++d) EXPECT_EQ(partial.out.at(row, head)[d], 0);
  }
}

}  // namespace
}  // namespace ringside
