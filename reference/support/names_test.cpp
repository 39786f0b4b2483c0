#include "reference/support/names.h"

#include <gtest/gtest.h>

#include "reference/test_support/test_errors.h"

namespace ringside {
namespace {

struct Dish {
  const char* name;
  int price;
};
constexpr Dish kMenu[] = {{"soup", 3}, {"fish", 9}};
const std::span<const Dish> kDishes = kMenu;

TEST(Names, AKnownNameFindsItsEntry) {
  EXPECT_EQ(find_by_name("dish", kDishes, "soup").price, 3);
  EXPECT_EQ(&find_by_name("dish", kDishes, "fish"), &kMenu[1]);
}

TEST(Names, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  for (const char* name : {"stew", "", "Soup", "soup ", "sou"})
    testing::expect_error<InvalidArgument>(
        [&] { find_by_name("dish", kDishes, name); },
        {"dish=\"", name, "\" is unknown", "expected one of \"soup\", \"fish\""});
}

TEST(Names, AreListedInOrder) {
  EXPECT_EQ(known_names(kDishes), "\"soup\", \"fish\"");
  EXPECT_EQ(known_names(std::span<const Dish>{}), "");
}

}  // namespace
}  // namespace ringside
