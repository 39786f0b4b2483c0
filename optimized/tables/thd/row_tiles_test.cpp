// Tiles and the walks of threads through them: every unit of every row once, at its place.
#include "optimized/tables/thd/row_tiles.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "reference/test_support/test_seed.h"

namespace ringside::thd {
namespace {

void expect_each_unit_once(int rows, int units_of_row) {
  RowArray array;
  array.cut(rows, units_of_row);
  std::vector<char> seen(static_cast<size_t>(array.units));
  for (int64_t t = 0; t < array.tiles; ++t) {
    const RowTile tile = RowTile::of(array, t);
    ASSERT_LE(tile.rows, kTileUnits);
    for (int thread = 0; thread < kRowThreads; ++thread) {
      UnitWalk walk(array, tile, thread);
      for (int k = thread; k < tile.units; k += kRowThreads, walk.next(array)) {
        ASSERT_LT(walk.row, tile.rows);
        ASSERT_LT(walk.unit, units_of_row);
        const int64_t unit = (tile.row + walk.row) * units_of_row + walk.unit;
        ASSERT_EQ(unit, t * kTileUnits + k) << rows << " rows of " << units_of_row;
        ++seen[unit];
      }
    }
  }
  for (const char times : seen) ASSERT_EQ(times, 1) << rows << " rows of " << units_of_row;
}

TEST(RowTiles, HoldEachUnitOnce) {
  std::mt19937 random = testing::engine(1);
  for (int units_of_row = 1; units_of_row < 300; ++units_of_row)
    expect_each_unit_once(1 + static_cast<int>(random() % 40), units_of_row);
  for (int n = 0; n < 300; ++n)
    expect_each_unit_once(1 + static_cast<int>(random() % 9),
                          1 + static_cast<int>(random() % 9000));
}

TEST(RowTiles, CountBeyond32Bits) {
  RowArray array;
  array.cut(2'000'000'000, 128);  // 4 TB of 2 KiB rows
  const RowTile last = RowTile::of(array, array.tiles - 1);
  EXPECT_EQ((last.row + last.rows), 2'000'000'000);
  EXPECT_EQ((last.row * 128 + last.unit + last.units), array.units);
}

TEST(RowTiles, UnitsAreAsWideAsAllOfThemAllow) {
  EXPECT_EQ(widest_unit(32, 64, 2048, 2048, 128), 16);
  EXPECT_EQ(widest_unit(32, 64, 2048, 2048, 24), 8);
  EXPECT_EQ(widest_unit(4, 64, 2048, 2048, 32), 4);
  EXPECT_EQ(widest_unit(32, 64, 2048, 2050, 32), 2);
  EXPECT_EQ(widest_unit(33, 64, 2048, 2048, 32), 1);
}

}  // namespace
}  // namespace ringside::thd
