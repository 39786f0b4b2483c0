// Where buffers lie and what calls must bring, on the host: no device is asked.
#include "optimized/program/parts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ringside {
namespace {

// Two matrices, of heads 0 to 2 and of head 2, whose ranks have a row between them.
RankStack some_stack() {
  RankStack stack;
  stack.matrices = {{0, 9, {0, 2}}, {18, 5, {2, 3}}};
  stack.of_rank = {{0, 1, 3}, {0, 5, 3}, {1, 1, 3}};
  stack.cells = 23;
  return stack;
}

TEST(Matrices, KnowTheirRows) {
  std::vector<std::byte> memory(23 * 4 * 2);
  const RankStack stack = some_stack();
  const DeviceMatrix first = matrix_of(memory.data(), stack, 0, 4, 2);
  EXPECT_EQ(first.data, memory.data());
  EXPECT_EQ(first.rows, 9);
  EXPECT_EQ(first.row_stride, 8);
  EXPECT_EQ(first.head_stride, 4);
  const DeviceMatrix second = matrix_of(memory.data(), stack, 1, 4, 2);
  EXPECT_EQ(second.data, memory.data() + 18 * 4 * 2);
  EXPECT_EQ(second.rows, 5);
  EXPECT_EQ(static_cast<std::byte*>(second.data) + second.rows * second.row_stride * 2,
            memory.data() + memory.size());
}

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
