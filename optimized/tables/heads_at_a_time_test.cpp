#include "optimized/tables/heads_at_a_time.h"

#include <gtest/gtest.h>

#include <utility>

namespace ringside {
namespace {

// The longer documents are, the fewer heads; fewer sooner of eight that share a key head, and where
// all rows are in use at a time.
TEST(HeadsOfDocuments, AreAsManyAsTheirRowsAllowFor) {
  const auto heads = [](int longest) { return heads_of_documents(longest, 1, true); };
  for (const int longest : {0, 1, 4096, 8191}) EXPECT_EQ(heads(longest), kEveryHead) << longest;
  for (const int longest : {8192, 16383}) EXPECT_EQ(heads(longest), 8) << longest;
  for (const int longest : {16384, 32767}) EXPECT_EQ(heads(longest), 4) << longest;
  for (const int longest : {32768, 1 << 20, INT32_MAX}) EXPECT_EQ(heads(longest), 2) << longest;
  EXPECT_EQ(heads_of_documents(6143, 8, true), kEveryHead);
  EXPECT_EQ(heads_of_documents(6144, 7, true), kEveryHead);
  EXPECT_EQ(heads_of_documents(6144, 8, true), 8);
  EXPECT_EQ(heads_of_documents(32768, 8, true), 2);
  for (const int group_size : {1, 8})
    for (const auto& [longest, number] :
         {std::pair{2047, kEveryHead}, {2048, 4}, {12287, 4}, {12288, 2}, {INT32_MAX, 2}})
      EXPECT_EQ(heads_of_documents(longest, group_size, false), number) << longest;
}

}  // namespace
}  // namespace ringside
