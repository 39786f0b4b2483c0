// Pieces in closed form against a walk over every row.
#include "reference/thd/chunk_pieces.h"

#include <gtest/gtest.h>

#include <vector>

#include "reference/test_support/test_random_case.h"

namespace ringside::thd {
namespace {

struct RandomRuns {
  Runs rows;
  int len, chunk_size;

  explicit RandomRuns(testing::Random& random) {
    const DualChunk chunk{random.integer(0, random.coin() ? 12 : 90), random.integer(1, 4)};
    const int rank = random.integer(0, chunk.cp_size - 1), row = random.integer(0, 9);
    rows = random.coin() ? chunk.runs(rank, row) : Runs{{0, chunk.rows}, {}, row};
    len = random.integer(0, chunk.rows);
    chunk_size = random.integer(1, 30);
  }
};

// A new piece wherever a valid row lies in another chunk than the one before.
std::vector<Interval> walked(const RandomRuns& c) {
  std::vector<Interval> pieces;
  for (int i = 0; i < c.rows.num_rows() && c.rows.position_at(i) < c.len; ++i) {
    const int chunk = c.rows.position_at(i) / c.chunk_size;
    if (i == 0 || chunk != c.rows.position_at(i - 1) / c.chunk_size) pieces.push_back({i, i});
    pieces.back().end = i + 1;
  }
  if (pieces.empty()) pieces.push_back({});
  return pieces;
}

TEST(ChunkPieces, AreTheRunsOfRowsOfOneChunk) {
  testing::Random random(1);
  for (int n = 0; n < testing::cases(200'000); ++n) {
    const RandomRuns c(random);
    const ChunkPieces cut(c.rows, c.len, c.chunk_size);
    const std::vector<Interval> want = walked(c);
    ASSERT_EQ(cut.count(), static_cast<int>(want.size())) << "case " << n;
    ASSERT_LE(cut.count(), most_pieces(1, c.rows.num_rows(), c.chunk_size));
    for (int i = 0; i < cut.count(); ++i) ASSERT_EQ(cut.piece(i), want[i]) << "case " << n;
  }
}

}  // namespace
}  // namespace ringside::thd
