// Where buffers lie and what calls must bring, on the host: no device is asked.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "optimized/program/stack_parts.h"

namespace ringside {
namespace {

TEST(Matrices, OfTheWrongLengthAreRefused) {
  const move::GlobalArray x{{nullptr, 8, 4, 6}, ElementType::float32, 2, 4};
  EXPECT_NO_THROW(require_rows_of(6, {{&x, "q"}}));
  try {
    require_rows_of(7, {{&x, "q"}});
    FAIL() << "6 rows for 7";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "q has 6 rows; the plan expects 7. Pass the whole array, padding included");
  }
}

TEST(FamilyWorkspace, IsTheMostThatALaunchAsksFor) {
  const std::vector<AttentionShape> shapes{{.num_heads = 2}, {.num_heads = 7}, {.num_heads = 3}};
  const auto bytes = [](const AttentionShape& shape) { return int64_t{100} * shape.num_heads; };
  EXPECT_EQ(most_bytes(bytes, shapes), 700);
  EXPECT_EQ(most_bytes(bytes, {}), 0);
  EXPECT_EQ(most_bytes(nullptr, shapes), 0);
}

}  // namespace
}  // namespace ringside
