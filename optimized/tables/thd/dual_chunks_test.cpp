// The same numbers as DualChunk's, for small lengths by brute force and for large ones at random.
#include "optimized/tables/thd/dual_chunks.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "reference/test_support/test_seed.h"

namespace ringside::thd {
namespace {

void expect_same(int n, int cp_size, int rank) {
  const DualChunk want{n, cp_size};
  const DualChunks got(cp_size);
  const Runs runs = got.runs(n, rank, 5), reference = want.runs(rank, 5);
  ASSERT_EQ(runs.first, reference.first) << n << " rows, rank " << rank << " of " << cp_size;
  ASSERT_EQ(runs.second, reference.second) << n << " rows, rank " << rank << " of " << cp_size;
  ASSERT_EQ(runs.row, 5);
  ASSERT_EQ(got.rows_before(n, rank + 1) - got.rows_before(n, rank), want.local_rows(rank));
}

// A slot is right if the rank holds the position in that very row.
void expect_slot(int n, int cp_size, int position) {
  const Slot slot = DualChunks(cp_size).slot(n, position);
  ASSERT_TRUE(0 <= slot.rank && slot.rank < cp_size) << position << " of " << n;
  const Runs runs = DualChunk{n, cp_size}.runs(slot.rank, 0);
  ASSERT_TRUE(0 <= slot.row && slot.row < runs.num_rows()) << position << " of " << n;
  ASSERT_EQ(runs.position_at(slot.row), position) << n << " rows, cp_size " << cp_size;
}

TEST(DualChunks, AreDualChunk) {
  for (int cp_size = 1; cp_size <= 9; ++cp_size)
    for (int n = 0; n <= 100; ++n) {
      for (int rank = 0; rank < cp_size; ++rank) expect_same(n, cp_size, rank);
      ASSERT_EQ(DualChunks(cp_size).rows_before(n, 0), 0);
      ASSERT_EQ(DualChunks(cp_size).rows_before(n, cp_size), n);
      for (int position = 0; position < n; ++position) expect_slot(n, cp_size, position);
    }
}

TEST(DualChunks, AreDualChunkForLargeNumbers) {
  std::mt19937 random = testing::engine(1);
  const auto up_to = [&](int64_t most) { return static_cast<int>(random() % (most + 1)); };
  constexpr int kMost = std::numeric_limits<int>::max();
  for (int n = 0; n < 300'000; ++n) {
    const int cp_size = n % 8 == 0 ? 32'768 : 1 + (up_to(32'767) >> (n % 16));
    const int rows = n % 5 == 0 ? kMost - up_to(9) : up_to(kMost) >> (n % 31);
    expect_same(rows, cp_size, n % 3 == 0 ? cp_size - 1 : up_to(cp_size - 1));
    if (rows == 0) continue;
    expect_slot(rows, cp_size, up_to(rows - 1));
  }
}

TEST(Divisor, RoundsDown) {
  std::mt19937 random = testing::engine(2);
  constexpr int kMost = std::numeric_limits<int>::max();
  const auto expect = [](int n, int d) { ASSERT_EQ(n / Divisor(d), n / d) << n << " by " << d; };
  for (int d = 1; d < 3000; ++d)
    for (int k = 0; k < 30; ++k) {
      const int multiple = static_cast<int>(random() % (kMost / d)) * d;
      for (const int n : {0, d - 1, multiple, multiple + d - 1, kMost / d * d, kMost}) expect(n, d);
    }
  for (int n = 0; n < 300'000; ++n)
    expect(static_cast<int>(random() >> 1), 1 + static_cast<int>(random() >> 1 >> (n % 31)));
}

}  // namespace
}  // namespace ringside::thd
