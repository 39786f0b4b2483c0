#include "optimized/tables/search.h"

#include <gtest/gtest.h>

#include <climits>
#include <vector>

namespace ringside {
namespace {

TEST(Search, FindsTheFirstOfEveryRange) {
  for (int lo = -3; lo <= 4; ++lo)
    for (int hi = lo; hi <= lo + 9; ++hi)
      for (int first = lo; first <= hi; ++first)
        ASSERT_EQ(first_where(lo, hi, [&](int i) { return i >= first; }), first)
            << lo << ".." << hi;
}

TEST(Search, AsksOnlyInsideTheRangeAndSeldom) {
  for (int n = 0; n <= 300; ++n)
    for (const int first : {0, n / 3, n}) {
      int asked = 0;
      first_where(5, 5 + n, [&](int i) {
        ++asked;
        EXPECT_TRUE(5 <= i && i < 5 + n) << i << " of " << n;
        return i >= 5 + first;
      });
      ASSERT_LE(1 << asked, 2 * n + 2) << "a halving each";
    }
}

TEST(Search, EndsInRangeWhateverThePredicateSays) {
  for (unsigned answers = 0; answers < 64; ++answers)
    for (int n = 0; n <= 30; ++n) {
      unsigned bits = answers;
      const int found = first_where(0, n, [&](int) {
        const bool answer = bits & 1;
        bits >>= 1;
        return answer;
      });
      ASSERT_TRUE(0 <= found && found <= n);
    }
  EXPECT_EQ(first_where(7, 3, [](int) { return true; }), 7);
}

TEST(Search, TheLongestRangeDoesNotOverflow) {
  for (const int first : {0, 1, INT_MAX / 2, INT_MAX - 1, INT_MAX})
    EXPECT_EQ(first_where(0, INT_MAX, [&](int i) { return i >= first; }), first);
}

}  // namespace
}  // namespace ringside
