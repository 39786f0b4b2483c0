// Which rows kernels leave alone, by closed forms, against asking the mask about every pair.
#include "optimized/tables/unseen_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

DeviceLayout view(const PackedLayout& x) {
  return {{x.cu_seqlens().data(), x.batch() + 1, false},
          {x.cu_seqlens_padded().data(), x.batch() + 1, false},
          x.num_rows()};
}

TEST(UnseenRows, AreThoseOfNoVisiblePair) {
  Random random(1);
  int without = 0;
  for (int number = 0; number < testing::cases(20'000); ++number) {
    Problem p = testing::random_problem(random);
    if (random.integer(0, 3) == 0) p.layout_q = PackedLayout(p.layout_q.cu_seqlens());
    if (random.coin()) p.layout_k = p.layout_q;
    const UnseenRows unseen{view(p.layout_q), view(p.layout_k), p.mask};
    std::vector<bool> q(p.layout_q.num_rows() + 3, true), k(p.layout_k.num_rows() + 3, true);
    for (int s = 0; s < p.layout_q.batch(); ++s)
      for (int i = 0; i < p.layout_q.len(s); ++i)
        for (int j = 0; j < p.layout_k.len(s); ++j)
          if (p.mask.allows(i, j, p.layout_q.len(s), p.layout_k.len(s)))
            q[p.layout_q.row_begin(s) + i] = k[p.layout_k.row_begin(s) + j] = false;
    const auto hidden = [](const std::vector<bool>& unseen_rows, int of_layout) {
      return std::count(unseen_rows.begin(), unseen_rows.begin() + of_layout, true);
    };
    if (every_row_sees_itself(p.layout_q, p.layout_k)) {
      ++without;
      ASSERT_EQ(hidden(q, p.layout_q.num_rows()) + hidden(k, p.layout_k.num_rows()), 0)
          << "case " << number;
    }
    for (size_t row = 0; row < q.size(); ++row)
      ASSERT_EQ(q[row], unseen.query(static_cast<int>(row)))
          << "query row " << row << ", case " << number;
    for (size_t row = 0; row < k.size(); ++row)
      ASSERT_EQ(k[row], unseen.key(static_cast<int>(row)))
          << "key row " << row << ", case " << number;
  }
  EXPECT_GE(without, testing::cases(1'000));
}

}  // namespace
}  // namespace ringside
