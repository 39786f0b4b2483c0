#include "reference/thd/micro_sequence.h"

#include <gtest/gtest.h>

#include "reference/thd/test_errors.h"

namespace ringside::thd {
namespace {

TEST(MicroSequence, OfAWindowThatStraddlesADocumentStartsItsKeysEarlier) {
  const MicroSequence micro = canonical_cu_seqlens_k({5, 6, 9}, 8, 14);
  EXPECT_EQ(micro.cu_seqlens_q, (Offsets{0, 3, 6}));
  EXPECT_EQ(micro.cu_seqlens_k, (Offsets{0, 6, 9}));
  EXPECT_EQ(micro.first_document_begin, 5);
}

TEST(MicroSequence, OfTheWholeStreamIsTheStream) {
  const MicroSequence micro = canonical_cu_seqlens_k({5, 0, 6}, 0, 11);
  EXPECT_EQ(micro.cu_seqlens_q, (Offsets{0, 5, 11}));
  EXPECT_EQ(micro.cu_seqlens_k, micro.cu_seqlens_q);
  EXPECT_EQ(micro.first_document_begin, 0);
}

TEST(MicroSequence, OfAnEmptyWindowHasNoDocument) {
  const MicroSequence micro = canonical_cu_seqlens_k({5, 6}, 7, 7);
  EXPECT_EQ(micro.cu_seqlens_q, Offsets{0});
  EXPECT_EQ(micro.cu_seqlens_k, Offsets{0});
  EXPECT_EQ(micro.first_document_begin, 7);
}

TEST(MicroSequence, ThatStartsWithADocumentDropsThePrefix) {
  const MicroSequence micro = canonical_cu_seqlens_k({7, 4, 1, 10}, 7, 22);
  EXPECT_EQ(micro.cu_seqlens_k, (Offsets{0, 4, 5, 15}));
  EXPECT_EQ(micro.first_document_begin, 7);
}

TEST(MicroSequenceErrors, SayWhatToFix) {
  const auto says = [](auto call, const char* begin) {
    const std::string message = refusal(call);
    EXPECT_TRUE(begins_with(message, begin)) << message;
  };
  says([] { canonical_cu_seqlens_k({5, 6}, 3, 12); }, "the window [3, 12) does not lie in the");
  says([] { canonical_cu_seqlens_k({5, 6}, 4, 3); }, "the window [4, 3) does not lie in the");
  says([] { canonical_cu_seqlens_k({5, -6}, 0, 0); }, "lengths[1]=-6; a length cannot be");
  says([] { canonical_cu_seqlens_k({2147483647, 1}, 0, 0); }, "lengths add up to 2147483648");
  says(
      [] {
        check_canonical_cu_seqlens_k({5, 11, 14});
      },
      "cu_seqlens_k[0]=5; expected canonical offsets, which start at 0. Pass cu_seqlens_k - 5 "
      "with k[5:] and v[5:]");
  EXPECT_NO_THROW(check_canonical_cu_seqlens_k({0, 6, 9}));
}

}  // namespace
}  // namespace ringside::thd
