// Where sequences lie, and every way to say it wrong.
#include "reference/rows/packed_layout.h"

#include <gtest/gtest.h>

#include <climits>

#include "reference/support/errors.h"
#include "reference/test_support/test_errors.h"

namespace ringside {
namespace {

using Ints = std::vector<int32_t>;
using testing::expect_error;

void expect_refused(const Ints& valid, const Ints& padded,
                    std::initializer_list<const char*> parts) {
  expect_error<InvalidArgument>([&] { PackedLayout(valid, padded); }, parts);
}

TEST(PackedLayout, PaddingLiesBehindTheTokensOfItsSequence) {
  const PackedLayout layout({0, 3, 5, 9}, {0, 4, 8, 13});  // a a a _ b b _ _ c c c c _
  EXPECT_EQ(layout.batch(), 3);
  EXPECT_EQ(layout.num_tokens(), 9);
  EXPECT_EQ(layout.num_rows(), 13);
  const int len[] = {3, 2, 4}, padded_len[] = {4, 4, 5}, row_begin[] = {0, 4, 8};
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(layout.len(s), len[s]);
    EXPECT_EQ(layout.padded_len(s), padded_len[s]);
    EXPECT_EQ(layout.row_begin(s), row_begin[s]);
  }
  EXPECT_EQ(layout.cu_seqlens(), (Ints{0, 3, 5, 9}));
  EXPECT_EQ(layout.cu_seqlens_padded(), (Ints{0, 4, 8, 13}));
}

TEST(PackedLayout, WithoutAPaddedTwinThereIsNoPadding) {
  EXPECT_EQ(PackedLayout({0, 5, 12}), PackedLayout({0, 5, 12}, {0, 5, 12}));
}

TEST(PackedLayout, DefaultHoldsNoSequence) {
  EXPECT_EQ(PackedLayout().batch(), 0);
  EXPECT_EQ(PackedLayout().num_rows(), 0);
  EXPECT_EQ(PackedLayout(), PackedLayout::from_lengths({}));
}

TEST(PackedLayout, ZeroLengthSequencesAreLegal) {
  const PackedLayout layout({0, 0, 2, 2}, {0, 3, 5, 5});
  EXPECT_EQ(layout.batch(), 3);
  EXPECT_EQ(layout.len(0), 0);
  EXPECT_EQ(layout.padded_len(0), 3);
  EXPECT_EQ(layout.padded_len(2), 0);
}

TEST(PackedLayout, ComparesTokensAndRows) {
  EXPECT_NE(PackedLayout({0, 2}, {0, 3}), PackedLayout({0, 2}, {0, 2}));
  EXPECT_NE(PackedLayout({0, 2}, {0, 3}), PackedLayout({0, 3}, {0, 3}));
}

TEST(PackedLayout, FromLengthsRoundsRowsUp) {
  const PackedLayout layout = PackedLayout::from_lengths({0, 1, 4, 5}, 4);
  EXPECT_EQ(layout.cu_seqlens(), (Ints{0, 0, 1, 5, 10}));
  EXPECT_EQ(layout.cu_seqlens_padded(), (Ints{0, 0, 4, 8, 16}));
  EXPECT_EQ(PackedLayout::from_lengths({3, 2}), PackedLayout({0, 3, 5}));
}

TEST(PackedLayout, FromLengthsReachesTheLastRowNumber) {
  EXPECT_EQ(PackedLayout::from_lengths({INT_MAX - 1, 1}).num_rows(), INT_MAX);
  EXPECT_EQ(PackedLayout::from_lengths({1}, INT_MAX).num_rows(), INT_MAX);
}

TEST(PackedLayoutErrors, EmptyArray) {
  expect_refused({}, {0}, {"cu_seqlens is empty", "expected [batch+1]", "np.cumsum(lengths)"});
  expect_refused({0}, {}, {"cu_seqlens_padded is empty", "np.cumsum(lengths)"});
  expect_error<InvalidArgument>([] { PackedLayout(Ints{}); }, {"cu_seqlens is empty"});
}

TEST(PackedLayoutErrors, NotStartingAtZero) {
  expect_refused({1, 5}, {0, 8}, {"cu_seqlens[0]=1", "must start at 0", "np.cumsum(lengths)"});
  expect_refused({-2, 5}, {0, 8}, {"cu_seqlens[0]=-2", "must start at 0"});
  expect_refused({0, 5}, {3, 8}, {"cu_seqlens_padded[0]=3", "must start at 0"});
}

TEST(PackedLayoutErrors, Falling) {
  expect_refused({0, 9, 7}, {0, 9, 18},
                 {"cu_seqlens[2]=7 is less than cu_seqlens[1]=9", "must never decrease",
                  "np.cumsum(lengths)"});
  expect_refused({0, 2, 4}, {0, 8, 6}, {"cu_seqlens_padded[2]=6", "cu_seqlens_padded[1]=8"});
  expect_refused({0, -1}, {0, 8}, {"cu_seqlens[1]=-1", "must never decrease"});
}

TEST(PackedLayoutErrors, DifferentNumbersOfSequences) {
  expect_refused(
      {0, 5}, {0, 8, 16},
      {"cu_seqlens has 2 entries", "cu_seqlens_padded has 3", "[batch+1]", "one entry a sequence"});
}

TEST(PackedLayoutErrors, FewerRowsThanTokens) {
  expect_refused({0, 4, 12}, {0, 8, 15},
                 {"sequence 1 has 8 tokens but only 7 rows", "cu_seqlens_padded[1]=8",
                  "cu_seqlens_padded[2]=15", "at least the lengths", "swap the two arguments"});
}

TEST(PackedLayoutErrors, OfFlashNameItsArguments) {
  const auto from_flash = [](const Ints& cu_seqlens, const Ints& seqused) {
    return [=] { PackedLayout::from_flash(cu_seqlens, seqused); };
  };
  expect_error<InvalidArgument>(from_flash({0, 5, 12}, {5, 8}),
                                {"seqused[1]=8 but sequence 1 has only 7 rows (cu_seqlens[1]=5, "
                                 "cu_seqlens[2]=12)",
                                 "at most as many"});
  expect_error<InvalidArgument>(from_flash({0, 9, 7}, {1, 1}), {"cu_seqlens[2]=7 is less than"});
  expect_error<InvalidArgument>(from_flash({0, 8, 16}, {INT_MAX, INT_MAX}), {"seqused[0]="});
}

TEST(PackedLayoutErrors, OfPositionsTheFirstIsZero) {
  expect_error<InvalidArgument>(
      [] {
        PackedLayout::from_position_ids({1, 2, 3});
      },
      {"position_ids[0]=1; expected 0, where the first document begins"});
  expect_error<InvalidArgument>(
      [] {
        PackedLayout::from_position_ids({0, 1, 3});
      },
      {"position_ids[2]=3; expected 2 (the document goes on) or 0"});
}

TEST(PackedLayoutErrors, BadLengths) {
  const auto from_lengths = [](const Ints& lengths, int multiple) {
    return [=] { PackedLayout::from_lengths(lengths, multiple); };
  };
  expect_error<InvalidArgument>(from_lengths({3, -1}, 1),
                                {"lengths[1]=-1", "cannot be negative", "pass 0"});
  for (const char* got : {"0", "-4"})
    expect_error<InvalidArgument>(from_lengths({3}, std::stoi(got)),
                                  {"pad_to_multiple_of=", got, "expected at least 1", "2*cp_size"});
  expect_error<InvalidArgument>(from_lengths({INT_MAX, 1}, 1),
                                {"lengths[0..1] need 2147483648 rows", "int32", "Split the pack"});
  expect_error<InvalidArgument>(from_lengths({INT_MAX}, 2), {"lengths[0..0] need 2147483648 rows"});
}

}  // namespace
}  // namespace ringside
