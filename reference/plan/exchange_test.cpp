#include "reference/plan/exchange.h"

#include <gtest/gtest.h>

namespace ringside {
namespace {

constexpr Message kQueries{0, Operand::q, 0, 1, {0, 1}}, kKeys{0, Operand::kv, 0, 1, {0, 1}};

TEST(Exchange, MovesWhatItSendsOrReceives) {
  const Exchange nothing{}, gives{ExchangeKind::ring_shift, {kKeys}, {}},
      takes{ExchangeKind::ring_shift, {}, {kQueries}};
  EXPECT_FALSE(nothing.moves(Operand::q) || nothing.moves(Operand::kv));
  EXPECT_TRUE(gives.moves(Operand::kv));
  EXPECT_FALSE(gives.moves(Operand::q));
  EXPECT_TRUE(takes.moves(Operand::q));
  EXPECT_FALSE(takes.moves(Operand::kv));
}

TEST(Exchange, IsEmptyWithoutAnyMessage) {
  EXPECT_TRUE(Exchange{}.empty());
  EXPECT_FALSE((Exchange{ExchangeKind::none, {kKeys}, {}}.empty()));
  EXPECT_FALSE((Exchange{ExchangeKind::none, {}, {kKeys}}.empty()));
}

TEST(Exchange, KindsHaveNames) {
  EXPECT_STREQ(name(ExchangeKind::none), "none");
  EXPECT_STREQ(name(ExchangeKind::ring_shift), "ring_shift");
  EXPECT_STREQ(name(ExchangeKind::all_gather), "all_gather");
  EXPECT_STREQ(name(ExchangeKind::all_to_all), "all_to_all");
}

TEST(Message, EndsBehindItsLastRow) {
  EXPECT_EQ((Message{0, Operand::q, 3, 4, {0, 1}}.row_end()), 7);
}

}  // namespace
}  // namespace ringside
