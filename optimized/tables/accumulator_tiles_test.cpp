#include "optimized/tables/accumulator_tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace ringside {
namespace {

TEST(TiledRows, EveryElementHasAPlaceOfItsOwn) {
  for (const int rows : {0, 1, 7, 8, 9, 64, 65})
    for (const int heads : {1, 2, 5})
      for (const int dim : {8, 24, 128}) {
        std::vector<int> taken(static_cast<size_t>(rows_of_tiles(rows) * heads * dim));
        for (int row = 0; row < rows; ++row)
          for (int head = 0; head < heads; ++head)
            for (int d = 0; d < dim; ++d)
              ++taken.at(static_cast<size_t>(tiled_offset(row, head, d, heads, dim)));
        for (const int times : taken) EXPECT_LE(times, 1);
      }
}

TEST(TiledRows, ATileOfEightRowsIsOnePiece) {
  const int heads = 3, dim = 40;
  for (const int row : {0, 8, 32})
    for (int head = 0; head < heads; ++head)
      for (int d = 0; d < dim; d += kTileSide)
        for (int i = 0; i < kTileCells; ++i)
          EXPECT_EQ(tiled_offset(row + i / 8, head, d + i % 8, heads, dim),
                    tiled_offset(row, head, d, heads, dim) + i);
}

TEST(TiledRows, TheNextColumnsOfARowLieOneTileBehind) {
  for (int row = 0; row < 20; ++row)
    EXPECT_EQ(tiled_offset(row, 1, 13, 2, 32) + kTileCells, tiled_offset(row, 1, 21, 2, 32));
}

TEST(TiledRows, RowsPastTwoToTheThirtyOneElements) {
  EXPECT_EQ(tiled_offset(int64_t{1} << 33, 0, 0, 16, 128), (int64_t{1} << 33) * 16 * 128);
}

TEST(Fragments, ALanesColumnsAreNeighbours) {
  for (int lane = 0; lane < 4; ++lane)
    for (int eight = 0; eight < 4; ++eight)
      for (int of_two = 0; of_two < 2; ++of_two)
        EXPECT_EQ(fragment_place(96 + 8 * eight + 2 * lane + of_two),
                  96 + 8 * lane + 2 * eight + of_two);
}

TEST(Fragments, PlacesAndColumnsMayBeExchanged) {
  for (int d = 0; d < 256; ++d) {
    EXPECT_EQ(fragment_place(fragment_place(d)), d);
    EXPECT_EQ(fragment_place(d) / kFragment, d / kFragment);
  }
}

}  // namespace
}  // namespace ringside
