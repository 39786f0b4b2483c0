// Arithmetic of the Hopper family, on the host: where boxes and slices lie; softcap of scores that
// are small beside the cap, and of any.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "optimized/attention/hopper/block_note.h"
#include "optimized/attention/hopper/far_softcap.h"
#include "optimized/attention/hopper/machine/box.h"
#include "optimized/attention/hopper/machine/descriptor.h"
#include "optimized/attention/hopper/near_softcap.h"
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

struct NearScore {
  bool is_near;
  float bent;

  template <int kTerms>
  NearScore(const NearScores<kTerms>& near, float score) {
    float beyond[1], factors[1];
    near.find_factors(&score, beyond, factors);
    is_near = beyond[0] < 0, bent = score * factors[0];
  }
};

// Of a cap: how large beside it scores may be that are near, and what their logits may be wrong by:
// beside the cap, the cube of a score.
struct NearLimits {
  double bound, error_of_cap, error_of_cube;
};
// Of the bound itself, of what lies on both sides of it, and of all in between.
template <int kTerms>
void expect_definition(const NearScores<kTerms>& near, const NearRange<kTerms>& range, double scale,
                       double cap, const NearLimits& limits) {
  constexpr double kRounding = 4e-7;
  SCOPED_TRACE(testing::Message() << "scale " << scale << ", a cap of " << cap);
  ASSERT_LE(range.error, limits.error_of_cap);
  const double of_cap = range.error * cap;
  ASSERT_LE(of_cap, 1e-5);
  const auto check = [&](float score, bool is_near) {
    const NearScore got(near, score), of_opposite(near, -score);
    ASSERT_EQ(got.is_near, is_near) << score;
    ASSERT_EQ(of_opposite.is_near, is_near);
    ASSERT_EQ(of_opposite.bent, -got.bent);
    if (!is_near) return;
    const double x = scale * score / cap, want = cap * std::tanh(x) / std::log(2.);
    const double size = std::fabs(want);
    const double error =
        std::min(of_cap, limits.error_of_cube * cap * std::fabs(x * x * x)) / std::log(2.);
    ASSERT_NEAR(got.bent, want, error + kRounding * size) << score;
  };
  const double bound = limits.bound * cap / std::fabs(scale);
  for (int i = 0; i <= 4'000; ++i) check(static_cast<float>(bound * 0.99999 * i / 4'000), true);
  for (double score = bound / 2; score > 1e-30; score /= 3) check(static_cast<float>(score), true);
  for (const double times : {1.00001, 1.1, 4., 1e6, 1e30})
    check(static_cast<float>(bound * times), false);
}

TEST(NearSoftcap, IsThatOfTheDefinitionUpToTheBound) {
  constexpr NearLimits kLimits[] = {{0.9, 1.53e-6, 1.86e-4}, {0.84852813742385702, 8.7e-7, 1.24e-4},
                                    {0.8, 4.94e-7, 1.1e-4},  {0.75, 2.64e-7, 5.4e-5},
                                    {0.7, 1.34e-7, 3.4e-5},  {0.6, 2.83e-8, 3.1e-5}};
  const std::pair<double, NearLimits> limits_of_cap[] = {
      {5.6, kLimits[0]},  {6.53, kLimits[0]}, {6.54, kLimits[1]}, {11.4, kLimits[1]},
      {11.5, kLimits[2]}, {20.2, kLimits[2]}, {20.3, kLimits[3]}, {37.8, kLimits[3]},
      {37.9, kLimits[4]}, {50., kLimits[4]},  {74.6, kLimits[4]}, {74.7, kLimits[5]},
      {350., kLimits[5]}};
  for (const double scale : {1 / std::sqrt(128.), 1., -0.3, 25.})
    for (const auto& [cap, limits] : limits_of_cap) {
      const NearRange<5>* const range = near_range(cap);
      ASSERT_NE(range, nullptr) << "a cap of " << cap;
      expect_definition<5>(NearSoftcap(scale, cap), *range, scale, cap, limits);
    }
}

TEST(NearSoftcap, IsThatOfTheDefinitionWhereScoresAreSmall) {
  constexpr NearLimits kWidest{0.33911649915626341, 6.63e-7, 3.6e-4}, kNarrow{0.3, 2.87e-7, 2.2e-4},
      kLeast{0.25, 8.2e-8, 2.8e-4};
  const std::pair<double, NearLimits> limits_of_cap[] = {
      {12.1, kWidest}, {15., kWidest}, {15.1, kNarrow}, {34.8, kNarrow},
      {34.9, kLeast},  {50., kLeast},  {121., kLeast}};
  for (const double scale : {1 / std::sqrt(128.), 1., -0.3, 25.})
    for (const auto& [cap, limits] : limits_of_cap) {
      const NearRange<3>* const range = small_range(cap);
      ASSERT_NE(range, nullptr) << "a cap of " << cap;
      expect_definition<3>(NearSoftcap(scale, cap).small, *range, scale, cap, limits);
    }
}

// So that what is hidden weighs nothing.
TEST(NearSoftcap, LeavesThoseInfiniteThatAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const double cap : {13., 15., 30., 50., 100.})
    EXPECT_EQ(NearScore(NearSoftcap(0.1, cap).small, -infinity).bent, -infinity);
  for (const double cap : {6., 9., 13., 15., 30., 50., 100.})
    EXPECT_EQ(NearScore(NearSoftcap(0.1, cap), -infinity).bent, -infinity);
}

TEST(NearSoftcap, HasNoLessThanOneUnitOfTheCap) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> power(-7, 9);
  for (int i = 0; i < 100'000; ++i) {
    const double cap = std::exp2(power(random));
    const float units = FarSoftcap(0.1, cap).cap * NearSoftcap(0.1, cap).per_logit;
    ASSERT_TRUE(units >= 1 && units <= 1 + 0x1p-23f) << units << ", a cap of " << cap;
  }
}

TEST(NearSoftcap, LeavesInfinitiesAndKeepsNan) {
  const NearSoftcap near(0.1, 30);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(NearScore(near, infinity).is_near);
  EXPECT_FALSE(NearScore(near, -infinity).is_near);
  EXPECT_TRUE(std::isnan(NearScore(near, std::nanf("")).bent));
}

TEST(NearSoftcap, TakesNoneBesideALowOrALargeCap) {
  for (const double cap : {0.5, 5.6, 12., 122., 200., 1e4})
    EXPECT_FALSE(NearScore(NearSoftcap(0.1, cap).small, 1e-20f).is_near) << "of cap " << cap;
  for (const double cap : {0.5, 3., 5.5, 354., 1e4, 1e30})
    for (const float score : {0.f, 1e-20f, 1.f})
      EXPECT_FALSE(NearScore(NearSoftcap(0.1, cap), score).is_near) << score << " of cap " << cap;
}

TEST(NearSoftcap, TakesNoneWhereFloatsCannotHoldItsTerms) {
  for (const double scale : {0., 1e-12, 1e12, 1e-38})
    for (const float score : {0.f, 1e-20f, 1.f, 1e20f})
      for (const bool is_near : {NearScore(NearSoftcap(scale, 30), score).is_near,
                                 NearScore(NearSoftcap(scale, 30).small, score).is_near})
        EXPECT_FALSE(is_near) << score << " times " << scale;
}

// Of four scores, as kernels bend them; `shift` is the cap less what is taken off. Exponents err by
// two last places, quotients by one, as a GPU's do.
std::array<float, 4> bent_far(const FarSoftcap& far, const std::array<float, 4>& scores,
                              float shift, float last_places = 0) {
  constexpr float kLastPlace = 0x1p-23f;
  float four[4];
  for (int i = 0; i < 4; ++i) {
    const float power = std::exp2(std::min(scores[i], far.most) * far.power);
    four[i] = far.denominator(power * (1 + (i % 2 == 0 ? 2 : -2) * last_places * kLastPlace));
  }
  const FarSoftcap::Four quotients(four);
  const float all = quotients.of_all(), inverse = 1 / all * (1 + last_places * kLastPlace);
  EXPECT_TRUE(std::isnan(all) || (std::isnormal(all) && std::isnormal(inverse))) << all;
  quotients.bend(inverse, shift, four);
  return {four[0], four[1], four[2], four[3]};
}

void expect_bent(double scale, double cap, const std::array<float, 4>& scores) {
  constexpr double kErrorOfCap = 9e-7;
  const FarSoftcap far(scale, cap);
  ASSERT_TRUE(far.holds());
  const double logits = cap / std::log(2.);
  for (const float last_places : {0.f, 1.f, -1.f}) {
    const std::array<float, 4> bent = bent_far(far, scores, far.cap, last_places);
    for (int i = 0; i < 4; ++i)
      ASSERT_NEAR(bent[i], logits * std::tanh(scale * scores[i] / cap), kErrorOfCap * logits)
          << scale * scores[i] << " of cap " << cap;
  }
}

// Whatever the others of its four are.
TEST(FarSoftcap, IsThatOfTheDefinition) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> x(-9, 9), of_large(-40, 40);
  for (const double scale : {1 / std::sqrt(128.), 1., 25., 1e-12})
    for (const double cap : {0.003, 0.5, 2., 50., 125., 1e6})
      for (int i = 0; i < 5'000; ++i) {
        std::array<float, 4> scores;
        for (float& score : scores)
          score =
              static_cast<float>((random() % 4 == 0 ? of_large(random) : x(random)) * cap / scale);
        expect_bent(scale, cap, scores);
      }
}

// Products of four are as large and as small as they may be.
TEST(FarSoftcap, HoldsAtItsBounds) {
  for (const double cap : {0x1.001p-8 * std::log(2.), 0x1.ffep29 * std::log(2.)}) {
    const float most = FarSoftcap(1, cap).most;
    const float xs[] = {-INFINITY, 0, most / 2, most, INFINITY};
    for (int i = 0; i < 5 * 5 * 5 * 5; ++i)
      expect_bent(1, cap, {xs[i % 5], xs[i / 5 % 5], xs[i / 25 % 5], xs[i / 125]});
  }
}

TEST(FarSoftcap, EndsAtTheCap) {
  const FarSoftcap far(0.1, 50);
  const float infinity = std::numeric_limits<float>::infinity(), cap = far.cap;
  const std::array<float, 4> bent = bent_far(far, {infinity, 1e30f, -infinity, -1e30f}, cap);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(bent[i], i < 2 ? cap : -cap, 2e-7 * cap) << i;
}

TEST(FarSoftcap, MakesAllOfFourNanWithOne) {
  for (const float bent : bent_far(FarSoftcap(0.1, 50), {1, 2, std::nanf(""), 3}, 1))
    EXPECT_TRUE(std::isnan(bent));
}

TEST(FarSoftcap, SaysWhatFloatsDoNotHold) {
  for (const auto& [scale, cap] :
       {std::pair{1., 1e-3}, {1., 1e10}, {1e39, 1.}, {1e-40, 50.}, {0., 30.}, {-0.3, 30.}})
    EXPECT_FALSE(FarSoftcap(scale, cap).holds()) << scale << ", " << cap;
}

}  // namespace
}  // namespace ringside::hopper
