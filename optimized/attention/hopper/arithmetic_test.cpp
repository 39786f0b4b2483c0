// Arithmetic of the Hopper family, on the host: where boxes and slices lie, and what blocks see.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "optimized/attention/hopper/block_note.h"
#include "optimized/attention/hopper/machine/box.h"
#include "optimized/attention/hopper/machine/descriptor.h"
#include "optimized/attention/hopper/seen_line.h"

namespace ringside::hopper {
namespace {

int random_up_to(std::mt19937& generator, int most) {
  return static_cast<int>(generator() % static_cast<unsigned>(most + 1));
}

// The copy engine's own arithmetic: modulo 2^64.
uint64_t place(const BoxCoordinates& at, int row, int64_t stride) {
  const uint64_t s = static_cast<uint64_t>(stride), wrap = static_cast<uint64_t>(kRaggedWrap);
  return (uint64_t(at.z) + uint64_t(row)) * s + uint64_t(at.y) * s + uint64_t(at.x) * (wrap - s);
}

TEST(RaggedBox, LiesAtItsRowsAndEndsBehindTheLast) {
  std::mt19937 generator(1);
  for (int i = 0; i < 10'000; ++i) {
    const int row = random_up_to(generator, 1 << 29), valid = 1 + random_up_to(generator, 1 << 29);
    const int64_t stride = 16 * int64_t{1 + random_up_to(generator, 1 << 27)};
    const BoxCoordinates at = ragged_box(0, 0, row, valid);
    ASSERT_GE(at.z, 0);
    ASSERT_LT(at.y, kRaggedPlaces);
    ASSERT_LT(at.x, kRaggedPlaces);
    for (const int r : {0, 1, valid - 1, valid, kBoxRows - 1}) {
      ASSERT_EQ(at.z + int64_t{r} < kRaggedRows, r < valid);
      if (r < valid) {
        ASSERT_EQ(place(at, r, stride), static_cast<uint64_t>((int64_t{row} + r) * stride));
      }
    }
  }
}

TEST(RaggedBox, HasNoRowWhereNoneIsLeft) {
  EXPECT_EQ(rows_of_box(5, 70, 0), 65);
  EXPECT_EQ(rows_of_box(5, 70, 1), 1);
  EXPECT_LE(rows_of_box(6, 70, 1), 0);
}

TEST(Swizzle, GivesEachPartAPlaceOfItsOwnAndEightRowsAllBanks) {
  std::set<uint32_t> places;
  for (int row = 0; row < kBoxRows; ++row)
    for (int part = 0; part < 8; ++part) places.insert(swizzled(row, part));
  EXPECT_EQ(places.size(), kBoxRows * 8u);
  EXPECT_EQ(*places.rbegin(), kBoxRows * 128u - 16);
  for (int part = 0; part < 8; ++part) {
    std::set<uint32_t> banks;
    for (int row = 0; row < 8; ++row) banks.insert(swizzled(row, part) % 128);
    EXPECT_EQ(banks.size(), 8u);
  }
}

TEST(Descriptor, HoldsItsFieldsInSixteenBytes) {
  const uint64_t d = tile_descriptor(0x12c00, 0x4000);
  EXPECT_EQ(d & 0x3fff, 0x12c00u >> 4);
  EXPECT_EQ(d >> 16 & 0x3fff, 0x4000u >> 4);
  EXPECT_EQ(d >> 32 & 0x3fff, 1024u >> 4);
  EXPECT_EQ(d >> 62, 1u);
  EXPECT_EQ(moved(d, 0x400) - d, 0x400u >> 4);
}

TEST(Descriptor, StepsFromSliceToSlice) {
  constexpr uint32_t kPanel = 0x4000;
  EXPECT_EQ(slice_offset<Deep::along_rows>(3, kPanel), 96u);
  EXPECT_EQ(slice_offset<Deep::along_rows>(4, kPanel), kPanel);
  EXPECT_EQ(slice_offset<Deep::along_rows>(7, kPanel), kPanel + 96);
  EXPECT_EQ(slice_offset<Deep::down_rows>(3, kPanel), 3u * 16 * 128);
}

constexpr int kBlockKeys = 128;

// Flags of one group, asked of every pair of a row and a key.
uint32_t flags_by_pairs(const std::vector<Interval>& rows, int begin) {
  bool some = false, all = true;
  for (const Interval& row : rows)
    for (int key = begin; key < begin + kBlockKeys; ++key)
      (row.contains(key) ? some : all) = row.contains(key);
  return some ? kSees | (all ? 0 : kMasked) : 0;
}

TEST(GroupSight, LeavesOutNoKeyAndAsksRowsWhereTheyDiffer) {
  std::mt19937 generator(2);
  for (int i = 0; i < 3'000; ++i) {
    const int window = random_up_to(generator, 300), shift = random_up_to(generator, 400);
    const int end = random_up_to(generator, 600), rows = 1 + random_up_to(generator, 63);
    std::vector<Interval> seen;
    for (int row = 0; row < rows; ++row) {
      const int to = std::min(end, shift + row + 1), from = std::min(to, std::max(0, to - window));
      seen.push_back({from, to});
    }
    const GroupSight sight(seen.front(), seen.back());
    for (int begin = 0; begin < 640; begin += 37) {
      const uint32_t got = sight.flags_of(begin, kBlockKeys), want = flags_by_pairs(seen, begin);
      ASSERT_EQ(got & want & kSees, want & kSees) << "a key is left out";
      if (want & kMasked) {
        ASSERT_TRUE(got & kMasked) << "a row is not asked";
      }
      if (got != 0 && !(got & kMasked)) {
        ASSERT_EQ(got, want);
      }
    }
  }
}

// Masks of all kinds, segments that need not meet, keys from any on; bounds of every size.
TEST(SeenLine, IsWhatTheMaskSaysOfEachRow) {
  std::mt19937 generator(3);
  const auto up_to = [&](int most) { return random_up_to(generator, most); };
  const auto bound = [&] { return up_to(3) == 0 ? kUnbounded : up_to(up_to(1) ? 40 : 1 << 30); };
  int held = 0;
  for (int i = 0; i < 20'000; ++i) {
    const int far = up_to(1) ? 0 : up_to(1 << 28);
    const SequenceMask s{{bound(), bound(), up_to(3) ? 0 : 1 + up_to(50),
                          up_to(1) ? Align::bottom_right : Align::top_left},
                         far + 1 + up_to(300),
                         far + up_to(300)};
    const auto stride = [&] { return up_to(3) ? 1 : 1 + up_to(2); };
    const int pos = up_to(s.len_q - 1);
    int first = up_to(std::min(40, s.len_q - 1 - pos));
    Segment q{0, pos, stride(), 0, s.len_q - pos};
    if (up_to(1) && q.len > 9) {
      q.gap_at = 1 + up_to(std::min(90, q.len / 2));
      q.gap = up_to(std::min(200, q.len - q.gap_at - 1)), q.len -= q.gap;
    }
    first = std::min(first, std::max(0, q.len - 1));
    const Segment k{0, up_to(far + 300), stride(), 0, up_to(400)};
    const int key = up_to(1) ? 0 : up_to(k.len);
    const SeenLine line(s, k, q, first, key);
    ASSERT_EQ(line.holds, q.stride == 1 && k.stride == 1 && s.mask.chunk == 0);
    if (!line.holds) continue;
    ++held;
    for (int row = 0; row < kItemRows && first + row < q.len; ++row) {
      const Interval got = line.seen_by(row);
      for (int j = key; j < k.len; ++j)
        ASSERT_EQ(got.contains(j - key),
                  s.mask.allows(q.position(first + row), k.position(j), s.len_q, s.len_k))
            << "row " << row << " of item " << i;
      ASSERT_GE(got.begin, 0);
      ASSERT_LE(got.end, std::max(0, k.len - key));
    }
  }
  EXPECT_GT(held, 3'000);
}

TEST(SeenLine, HoldsForNeitherChunksNorStridesNorWhatIsFarAway) {
  const Segment one{0, 0, 1, 0, 9}, two{0, 0, 2, 0, 9};
  const auto holds = [](const SequenceMask& s, const Segment& q, const Segment& k) {
    return SeenLine(s, k, q, 0, 0).holds;
  };
  const SequenceMask causal{Mask::causal(), 9, 9};
  EXPECT_TRUE(holds(causal, one, one));
  EXPECT_FALSE(holds(causal, two, one));
  EXPECT_FALSE(holds(causal, one, two));
  EXPECT_FALSE(holds({Mask::chunked(4), 9, 9}, one, one));
  EXPECT_FALSE(holds({Mask::causal(), SeenLine::kFar, 9}, one, one));
  EXPECT_FALSE(holds({Mask::causal(), 9, SeenLine::kFar}, one, one));
}

TEST(BlockNote, KeepsTheGroupsApart) {
  BlockNote note;
  note.rows = kItemRows;
  note.flags = kSees | kMasked | kSees << kBitsOfGroup | kLastBlock;
  EXPECT_TRUE(note.sees(0) && note.sees(1));
  EXPECT_TRUE(note.is_masked(0));
  EXPECT_FALSE(note.is_masked(1) || note.is_clear());
  note.flags = kSees | kSees << kBitsOfGroup | kLastBlock;
  EXPECT_FALSE(note.is_masked(0) || note.is_masked(1));
  EXPECT_TRUE(note.is_clear());
  note.flags = kSees << kBitsOfGroup;
  EXPECT_TRUE(!note.sees(0) && note.sees(1) && !note.is_clear());
}

}  // namespace
}  // namespace ringside::hopper
