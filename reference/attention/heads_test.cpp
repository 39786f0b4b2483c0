#include "reference/attention/heads.h"

#include <gtest/gtest.h>

namespace ringside {
namespace {

TEST(ResidentHeads, AreCountedFromTheFirstOfTheBuffer) {
  const ResidentHeads heads{6, 1, 4};  // query heads 6, 7, ... of all, kv heads 1, 2, ...
  EXPECT_EQ(heads.kv_head_of(0), 0);   // head 6 uses kv head 1
  EXPECT_EQ(heads.kv_head_of(1), 0);
  EXPECT_EQ(heads.kv_head_of(2), 1);  // head 8 uses kv head 2
  EXPECT_EQ(heads.query_heads_of(0, 5), (Interval{0, 2}));
  EXPECT_EQ(heads.query_heads_of(1, 5), (Interval{2, 5}));
}

TEST(ResidentHeads, OfAKvHeadAreThoseThatUseIt) {
  for (int group = 1; group <= 4; ++group)
    for (int first = 0; first <= 9; ++first)
      for (int num = 1; num <= 9; ++num) {
        const ResidentHeads heads{first, first / group, group};
        for (int kv = 0; kv <= heads.kv_head_of(num - 1); ++kv)
          for (int head = 0; head < num; ++head)
            ASSERT_EQ(heads.query_heads_of(kv, num).contains(head),
                      (first + head) / group == first / group + kv);
      }
}

}  // namespace
}  // namespace ringside
