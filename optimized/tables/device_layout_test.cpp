// Offsets in either width, whatever they hold, and the room that a program asks of them.
#include "optimized/tables/device_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "optimized/tables/length_lists.h"
#include "reference/support/errors.h"

namespace ringside {
namespace {

const std::vector<int32_t> kValid{0, 3, 3, 8}, kPadded{0, 4, 4, 10};
const std::vector<int64_t> kWideValid{0, 3, 3, 8}, kWidePadded{0, 4, 4, 10};

DeviceLayout layout(bool wide_valid, bool wide_padded) {
  const auto offsets = [](const auto& narrow, const auto& wide, bool is_wide) {
    const void* data = is_wide ? static_cast<const void*>(wide.data()) : narrow.data();
    return DeviceOffsets{data, static_cast<int>(narrow.size()), is_wide};
  };
  return {offsets(kValid, kWideValid, wide_valid), offsets(kPadded, kWidePadded, wide_padded), 10};
}

TEST(DeviceLayout, ReadsBothWidths) {
  for (const bool wide_valid : {false, true})
    for (const bool wide_padded : {false, true}) {
      const DeviceLayout x = layout(wide_valid, wide_padded);
      ASSERT_EQ(x.batch(), 3);
      EXPECT_EQ((std::vector{x.tokens(0), x.tokens(1), x.tokens(2)}), (std::vector{3, 0, 5}));
      EXPECT_EQ((std::vector{x.rows(0), x.rows(1), x.rows(2)}), (std::vector{4, 0, 6}));
      const std::vector of_row{0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 3};
      for (int row = 0; row <= 10; ++row) EXPECT_EQ(x.sequence_of(row), of_row[row]) << row;
    }
}

TEST(DeviceLayout, GoesOnWithEmptySequences) {
  const DeviceLayout x = layout(true, false);
  EXPECT_EQ((std::vector{x.valid.going_on(0), x.valid.going_on(3), x.valid.going_on(9)}),
            (std::vector{0, 8, 8}));
  EXPECT_EQ(x.padded.going_on(4), 10);
  const int32_t one = 7;
  EXPECT_EQ((DeviceOffsets{&one, 1, false}.going_on(0)), 0);  // no sequences, wherever they begin
  EXPECT_EQ(DeviceOffsets{}.going_on(5), 0);                  // nothing is read
}

TEST(DeviceLayout, OfWideOffsetsThatMeanNothingDoesNotFit) {
  LengthTables tables;
  tables.max_batch = 2, tables.q.max_rows = 10;
  for (const int64_t end : {int64_t{11}, int64_t{1} << 32, (int64_t{1} << 32) + 4,
                            int64_t{-1} << 40, INT64_MAX, INT64_MIN}) {
    const std::vector<int64_t> offsets{0, 4, end};
    const DeviceLayout given{{offsets.data(), 3, true}, {offsets.data(), 3, true}, 10};
    EXPECT_TRUE(tables.fits(tables.q, 0, tables.bounds(given, 0)));
    EXPECT_FALSE(tables.fits(tables.q, 1, tables.bounds(given, 1))) << end;
  }
}

std::string refusal(const DeviceLayout& q, const DeviceLayout& k) {
  LengthTables tables;
  tables.max_batch = 3, tables.q.max_rows = tables.k.max_rows = 10;
  try {
    require_room(tables, q, k);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceLayout, ThatCannotBeTheProgramsIsRefused) {
  const DeviceLayout good = layout(false, true);
  EXPECT_EQ(refusal(good, good), "");
  DeviceLayout bad = good;
  bad.num_rows = 9;
  EXPECT_EQ(refusal(good, bad),
            "the layout of k has 9 rows; expected the program's 10. Pass the rows of the array, "
            "x.shape[0]");
  bad = good, bad.padded.size = 3;
  EXPECT_EQ(refusal(bad, good),
            "cu_seqlens of q has 4 entries and cu_seqlens_padded 3; expected [batch+1] in both. "
            "Pass those of one batch");
  bad = good, bad.valid.size = bad.padded.size = 3;
  EXPECT_EQ(refusal(good, bad),
            "3 sequences of q and 2 of k; expected as many. Pass the layouts of one batch");
  bad.valid.size = bad.padded.size = 5;
  EXPECT_EQ(refusal(bad, bad),
            "4 sequences; the program has room for 3. Make one with a larger max_sequences");
  bad.valid.size = bad.padded.size = 0;
  EXPECT_EQ(refusal(bad, bad), "no offsets; expected [batch+1]. Pass [0] for no sequences");
}

}  // namespace
}  // namespace ringside
