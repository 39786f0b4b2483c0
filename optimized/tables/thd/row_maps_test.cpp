// Where rows go, by brute force over the reference's copies; and for offsets that mean nothing.
#include "optimized/tables/thd/row_maps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "reference/test_support/test_seed.h"
#include "reference/thd/reorder.h"

namespace ringside::thd {
namespace {

struct Numbers : std::mt19937 {
  explicit Numbers(unsigned number) : std::mt19937(testing::engine(number)) {}
  int integer(int lo, int hi) { return lo + static_cast<int>((*this)() % (hi - lo + 1)); }
};

// Offsets as they come, of either width.
struct Given {
  Offsets narrow;
  std::vector<int64_t> wide;
  bool is_wide;

  Given(Offsets offsets, bool is_wide_)
      : narrow(std::move(offsets)), wide(narrow.begin(), narrow.end()), is_wide(is_wide_) {}
  explicit Given(std::vector<int64_t> offsets)
      : narrow(offsets.size()), wide(std::move(offsets)), is_wide(true) {}
  const void* data() const {
    return is_wide ? static_cast<const void*>(wide.data()) : narrow.data();
  }
  DeviceOffsets view() const { return {data(), static_cast<int>(narrow.size()), is_wide}; }
};

Given random_offsets(Numbers& random, int multiple) {
  Offsets offsets{0};
  for (int s = random.integer(1, 6); s > 0; --s)
    offsets.push_back(offsets.back() +
                      multiple * (random.integer(0, 3) ? random.integer(0, 9) : 0));
  return {offsets, random.integer(0, 1) == 1};
}

// What the device fills in before rows move.
template <typename Map>
std::vector<typename Map::Sum> table_of(const Map& map) {
  std::vector<typename Map::Sum> table;
  for (int row = 0; row < map.table_rows(); ++row)
    for (int c = 0; c < map.table_columns(); ++c) {
      table.push_back(0);
      for (int k = 0; k < map.table_columns(); ++k) table.back() += map.term(row, k, k < c);
    }
  return table;
}

// The end of a search that began with the whole batch, as kernels narrow it for a tile.
template <typename Map, typename FirstMoves>
RowMove move_in_tile(const Map& map, const FirstMoves& first, int i, Numbers& random) {
  const int begin = random.integer(0, i), end = random.integer(i, map.num_moves() - 1);
  const int lo = last_at_or_before(first, begin, 0, map.last());
  const int hi = last_at_or_before(first, end, 0, map.last());
  return map.move(i, lo, std::max(lo, hi));
}

std::vector<RowMove> expected(const RowCopies& copies, int moves) {
  std::vector<RowMove> rows(static_cast<size_t>(moves));
  for (const RowCopy& c : copies)
    for (int64_t k = 0; k < c.rows; ++k)
      rows[c.from + k] = {static_cast<int>(c.from + k), static_cast<int>(c.to + k)};
  return rows;
}

TEST(ReorderMap, IsTheReferencesCopiesBothWays) {
  Numbers random(1);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const int cp_size = random.integer(1, 6);
    const Given starts = random_offsets(random, random.integer(0, 1) ? 2 * cp_size : 1);
    const int rows = starts.narrow.back();
    ReorderMap map{starts.view(), cp_size, rows};
    const auto table = table_of(map);
    map.table = table.data();
    const auto want = expected(sequence_order_to_cp_rank_order(starts.narrow, cp_size), rows);
    for (int i = 0; i < rows; ++i) {
      map.to_ranks = true;
      ASSERT_EQ(move_in_tile(map, map.starts, i, random), want[i]) << "case " << n << " row " << i;
      map.to_ranks = false;
      const RowMove back = move_in_tile(map, map.starts, i, random);
      ASSERT_EQ(back, (RowMove{want[i].to, want[i].from})) << "case " << n << " row " << i;
    }
  }
}

TEST(ReorderMap, ItsTableIsWhereRanksRowsBegin) {
  Numbers random(5);
  for (int n = 0; n < testing::cases(20'000); ++n) {
    const int cp_size = random.integer(1, 6);
    const Given starts = random_offsets(random, 1);
    std::vector<uint32_t> want;
    int32_t row = 0;
    for (int rank = 0; rank < cp_size; ++rank) {
      const Offsets local = local_cu_seqlens_padded(starts.narrow, {cp_size, rank});
      for (size_t s = 0; s + 1 < local.size(); ++s) want.push_back(row + local[s]);
      row += local.back();
    }
    const ReorderMap map{starts.view(), cp_size, starts.narrow.back()};
    ASSERT_EQ(table_of(map), want) << "case " << n;
  }
}

TEST(ValidRowMap, IsTheReferencesCopies) {
  Numbers random(2);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const int first = random.integer(0, 5);
    Offsets starts = random_offsets(random, 1).narrow, valid{random.integer(0, 9)};
    for (int32_t& row : starts) row += first;
    for (size_t s = 0; s + 1 < starts.size(); ++s)
      valid.push_back(valid.back() + random.integer(0, starts[s + 1] - starts[s]));
    const int rows = starts.back() + random.integer(0, 4);
    const Given given{starts, n % 2 == 0}, tokens{valid, n % 4 < 2};
    const ValidRowMap map{given.view(), tokens.view(), rows};
    const auto want = expected(valid_token_copies(starts, valid, rows), rows);
    for (int i = 0; i < rows; ++i)
      ASSERT_EQ(move_in_tile(map, map.starts, i, random), want[i]) << "case " << n << " row " << i;
  }
}

TEST(SegmentMap, FollowsTheTable) {
  Numbers random(3);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    std::vector<int32_t> narrow;
    std::vector<int64_t> first{0};  // rows of earlier segments
    std::vector<RowMove> want;
    const int segments = random.integer(1, 5), from_rows = 60;
    int to_rows = 0;
    for (int s = 0; s < segments; ++s) {
      const int rows = random.integer(0, 6), from_step = random.integer(0, 3);
      const int to_step = random.integer(1, 3), from = random.integer(0, 40), to = to_rows;
      narrow.insert(narrow.end(), {from, from_step, to, to_step, rows});
      for (int k = 0; k < rows; ++k) want.push_back({from + k * from_step, to + k * to_step});
      first.push_back(first.back() + rows);
      to_rows += rows * to_step;
    }
    const Given table{narrow, n % 2 == 0};
    SegmentMap map{table.data(), segments, table.is_wide, from_rows, to_rows};
    ASSERT_EQ(table_of(map), first) << "case " << n;
    map.table = first.data();
    want.resize(static_cast<size_t>(to_rows));
    for (int i = 0; i < to_rows; ++i)
      ASSERT_EQ(move_in_tile(map, map.table, i, random), want[i]) << "case " << n << " move " << i;
  }
}

// Neither sorted nor in range, and in one case of four far beyond all rows.
Given meaningless(Numbers& random, int size) {
  std::vector<int64_t> values;
  Offsets narrow;
  for (int i = 0; i < size; ++i) {
    const int value = random.integer(0, 9) ? random.integer(-5, 25) : int(random());
    narrow.push_back(value);
    values.push_back(random.integer(0, 3) ? value : int64_t{value} << random.integer(0, 32));
  }
  return random.integer(0, 1) ? Given(narrow, false) : Given(values);
}

// Whatever moves, moves between rows that exist.
TEST(RowMaps, OfMeaninglessOffsetsStayInside) {
  Numbers random(4);
  int moved = 0;
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const int size = random.integer(2, 6), rows = random.integer(1, 20);
    const Given starts = meaningless(random, size), valid = meaningless(random, size);
    const Given table = meaningless(random, 5 * size);
    ReorderMap reorder{starts.view(), random.integer(1, 4), rows, n % 3 == 0};
    const ValidRowMap valid_rows{starts.view(), valid.view(), rows};
    SegmentMap segments{table.data(), size, table.is_wide, rows, rows};
    const auto rank_rows = table_of(reorder);
    const auto earlier_rows = table_of(segments);
    reorder.table = rank_rows.data(), segments.table = earlier_rows.data();
    for (int i = 0; i < rows; ++i)
      for (const RowMove& move : {move_in_tile(reorder, reorder.starts, i, random),
                                  move_in_tile(valid_rows, valid_rows.starts, i, random),
                                  move_in_tile(segments, segments.table, i, random)}) {
        if (!move.any()) continue;
        ++moved;
        ASSERT_TRUE(0 <= move.from && move.from < rows) << "case " << n;
        ASSERT_TRUE(0 <= move.to && move.to < rows) << "case " << n;
      }
  }
  EXPECT_GT(moved, testing::cases(10'000));
}

}  // namespace
}  // namespace ringside::thd
