#include "reference/thd/reorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "reference/partition/partition.h"
#include "reference/test_support/test_random_case.h"
#include "reference/thd/test_errors.h"

namespace ringside::thd {
namespace {

using Bytes = std::vector<std::byte>;

Bytes copied(const RowCopies& copies, const Bytes& source, int64_t row_bytes) {
  Bytes target(source.size(), std::byte{0xAA});
  copy_rows(copies, {source.data(), target.data(), row_bytes});
  return target;
}

Bytes random_bytes(testing::Random& random, int64_t size) {
  Bytes bytes(static_cast<size_t>(size));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.integer(0, 255));
  return bytes;
}

TEST(Reorder, IsEveryRanksZigzagShardInTurnAndBack) {
  testing::Random random(1);
  for (int i = 0; i < 300; ++i) {
    const PackedLayout layout = testing::random_layout(random, random.integer(0, 4));
    const int cp_size = random.integer(1, 6), row_bytes = random.integer(0, 9);
    const Bytes x = random_bytes(random, int64_t{layout.num_rows()} * row_bytes);
    Bytes want;
    for (int rank = 0; rank < cp_size; ++rank)
      for (const Segment& s : find_partition("zigzag").shard(layout, cp_size, rank))
        for (int row = 0; row < s.len; ++row) {
          const auto from = x.begin() + (layout.row_begin(s.seq) + s.position(row)) * row_bytes;
          want.insert(want.end(), from, from + row_bytes);
        }
    const Offsets& starts = layout.cu_seqlens_padded();
    const Bytes by_rank = copied(sequence_order_to_cp_rank_order(starts, cp_size), x, row_bytes);
    ASSERT_EQ(by_rank, want);
    ASSERT_EQ(copied(cp_rank_order_to_sequence_order(starts, cp_size), by_rank, row_bytes), x);
  }
}

TEST(Reorder, JoinsConsecutiveRowsIntoOneCopy) {
  EXPECT_EQ(sequence_order_to_cp_rank_order({0, 8, 16}, 1), (RowCopies{{0, 0, 16}}));
  // Rank 1 of 2 holds 2..3 and 4..5: neighbours.
  EXPECT_EQ(sequence_order_to_cp_rank_order({0, 8}, 2),
            (RowCopies{{0, 0, 2}, {6, 2, 2}, {2, 4, 4}}));
}

TEST(PartitionIndices, AreTheRanksPartOfTheRankOrder) {
  const Offsets starts{0, 7, 7, 30, 31};
  std::vector<int32_t> rows(31);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<int32_t> by_rank;
  for (int rank = 0; rank < 3; ++rank) {
    const auto indices = partition_indices(starts, {3, rank});
    EXPECT_EQ(local_cu_seqlens_padded(starts, {3, rank}).back(), static_cast<int>(indices.size()));
    by_rank.insert(by_rank.end(), indices.begin(), indices.end());
  }
  std::vector<int32_t> want(rows.size());
  copy_rows(sequence_order_to_cp_rank_order(starts, 3),
            {reinterpret_cast<const std::byte*>(rows.data()),
             reinterpret_cast<std::byte*>(want.data()), sizeof(int32_t)});
  EXPECT_EQ(by_rank, want);
}

TEST(CopyRows, SpreadsALargeCopyOverThreadsWithoutLosingARow) {
  testing::Random random(2);
  const int rows = 40'001,
            row_bytes = 2063;  // 83 MB, three threads; no block ends where a copy does
  Bytes x(static_cast<size_t>(rows) * row_bytes);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::byte>((i * 2654435761u) >> 13);
  RowCopies backwards;
  for (int row = 0; row < rows;) {
    const int length = std::min(random.integer(1, 900), rows - row);
    append(backwards, {row, rows - row - length, length});
    row += length;
  }
  const Bytes turned = copied(backwards, x, row_bytes);
  EXPECT_TRUE(copied(inverse(backwards), turned, row_bytes) == x);
  EXPECT_TRUE(
      std::equal(x.begin(), x.begin() + row_bytes, turned.begin() + backwards[0].to * row_bytes));
}

TEST(ValidTokens, AreCopiedFromOffsetsThatDoNotStartAtZero) {
  EXPECT_EQ(valid_token_copies({2, 6, 12}, {0, 3, 5}, 12), (RowCopies{{2, 2, 3}, {6, 6, 2}}));
  EXPECT_EQ(valid_token_copies({2, 6, 12}, {7, 10, 12}, 20), (RowCopies{{2, 2, 3}, {6, 6, 2}}));
}

TEST(ValidTokens, LeaveEveryOtherRowUntouched) {
  const Bytes source(12, std::byte{1});
  const Bytes target = copied(valid_token_copies({2, 6, 12}, {0, 3, 5}, 12), source, 1);
  for (int row = 0; row < 12; ++row)
    EXPECT_EQ(target[row] == std::byte{1}, (2 <= row && row < 5) || (6 <= row && row < 8)) << row;
}

TEST(RowErrors, SayWhatToFix) {
  const auto says = [](auto call, const char* begin) {
    const std::string message = refusal(call);
    EXPECT_TRUE(begins_with(message, begin)) << message;
  };
  says([] { check_covers({0, 8}, 10); }, "x has 10 rows but cu_seqlens_padded ends at row 8: the");
  says([] { check_covers({0, 8}, 6); }, "x has 6 rows but cu_seqlens_padded ends at row 8; they");
  says([] { check_covers({1, 8}, 8); }, "cu_seqlens_padded[0]=1; it must start at 0.");
  says([] { sequence_order_to_cp_rank_order({}, 2); }, "cu_seqlens_padded is empty;");
  says([] { sequence_order_to_cp_rank_order({0, 8, 4}, 2); }, "cu_seqlens_padded[2]=4 is less");
  says([] { sequence_order_to_cp_rank_order({0, 8}, 65537); }, "cp_size=65537; expected 1 to");
  says([] { partition_indices({0, 8}, {2, 2}); }, "rank=2; expected 0 to 1.");
  says([] { valid_token_copies({0, 9}, {0, 3}, 8); }, "cu_seqlens_padded[1]=9 lies beyond the 8");
  says([] { valid_token_copies({-1, 8}, {0, 3}, 8); }, "cu_seqlens_padded[0]=-1; expected a row");
  says([] { valid_token_copies({0, 4, 8}, {0, 5, 6}, 8); }, "sequence 0 has 5 tokens but only 4");
  says([] { valid_token_copies({0, 4, 8}, {0, 4}, 8); }, "cu_seqlens has 2 entries and");
}

}  // namespace
}  // namespace ringside::thd
