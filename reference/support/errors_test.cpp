#include "reference/support/errors.h"

#include <gtest/gtest.h>

namespace ringside {
namespace {

template <typename... Parts>
PlanError error_of(const Parts&... parts) {
  try {
    plan_require(false, parts...);
  } catch (const PlanError& error) {
    return error;
  }
  throw std::logic_error("nothing was refused");
}

TEST(PlanError, APlaceIsWordsOfTheMessageAndNumbersOfTheError) {
  const PlanError error = error_of(At{.rank = 2, .step = 0, .tile = 7}, " reads row ", 5);
  EXPECT_STREQ(error.what(), "rank 2 step 0 tile 7 reads row 5");
  EXPECT_EQ(error.at, (At{.rank = 2, .step = 0, .tile = 7}));
  EXPECT_STREQ(error_of(At{.rank = 1}, " has 3 steps").what(), "rank 1 has 3 steps");
}

TEST(PlanError, RowsAreNumbersAloneAndSoIsWhatIsSaidOtherwise) {
  EXPECT_STREQ(error_of(At{.row = 4, .key = 2}, "a pair").what(), "a pair");
  const PlanError error = error_of(Unsaid{{.rank = 3}}, "rank 3 computes twice");
  EXPECT_STREQ(error.what(), "rank 3 computes twice");
  EXPECT_EQ(error.at, At{.rank = 3});
}

TEST(PlanError, TheFirstPlaceIsThatOfTheError) {
  const PlanError error = error_of(At{.rank = 1}, " meets ", At{.rank = 5});
  EXPECT_STREQ(error.what(), "rank 1 meets rank 5");
  EXPECT_EQ(error.at, At{.rank = 1});
  EXPECT_EQ(error_of("no place").at, At{});
}

}  // namespace
}  // namespace ringside
