// What lanes of a warp tell each other, against the ISA's words.
#include <bit>

#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

using testing::results_of;

// Of each lane: what it gets, + 1000 where the predicate says that it came from within the segment.
std::vector<uint32_t> shuffled(const std::string& how) {
  return results_of("add.u32 %r1, %thread, 100;\nshfl.sync." + how +
                    ", -1;\nselp.b32 %r3, 1000, 0, %p0;\nadd.u32 %r0, %r2, %r3;");
}

TEST(PtxWarps, ShufflesAcrossTheWholeWarp) {
  const auto idx = shuffled("idx.b32 %r2|%p0, %r1, 5, 31"),
             up = shuffled("up.b32 %r2|%p0, %r1, 3, 0");
  const auto down = shuffled("down.b32 %r2|%p0, %r1, 3, 31");
  const auto bfly = shuffled("bfly.b32 %r2|%p0, %r1, 16, 31");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(idx[lane], 1105) << lane;
    EXPECT_EQ(up[lane], lane < 3 ? lane + 100 : lane + 1097) << lane;
    EXPECT_EQ(down[lane], lane > 28 ? lane + 100 : lane + 1103) << lane;
    EXPECT_EQ(bfly[lane], (lane ^ 16) + 1100) << lane;
  }
}

TEST(PtxWarps, ShufflesWithinSegmentsOfEight) {  // c: 24 << 8 the segments' mask, | the last lane
  const auto idx = shuffled("idx.b32 %r2|%p0, %r1, 13, 6175"),
             up = shuffled("up.b32 %r2|%p0, %r1, 3, 6144");
  const auto down = shuffled("down.b32 %r2|%p0, %r1, 3, 6175");
  const auto bfly = shuffled("bfly.b32 %r2|%p0, %r1, 8, 6175");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t first = lane / 8 * 8;
    EXPECT_EQ(idx[lane], first + 5 + 1100) << lane;
    EXPECT_EQ(up[lane], lane - first < 3 ? lane + 100 : lane + 1097) << lane;
    EXPECT_EQ(down[lane], lane - first > 4 ? lane + 100 : lane + 1103) << lane;
    EXPECT_EQ(bfly[lane], (lane & 8) != 0 ? (lane ^ 8) + 1100 : lane + 100) << lane;
  }
}

TEST(PtxWarps, EachLaneNamesItsOwnSource) {
  const auto results = results_of(
      "mul.lo.u32 %r1, %thread, 3; add.u32 %r2, %thread, 1;\n"
      "shfl.sync.idx.b32 %r0, %r1, %r2, 31, -1;");
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(results[lane], (lane + 1) % 32 * 3);
}

TEST(PtxWarps, VotesMatchesAndSums) {
  const std::string odd = "and.b32 %r1, %thread, 1; setp.eq.u32 %p0, %r1, 1;\n";
  EXPECT_EQ(results_of(odd + "vote.sync.ballot.b32 %r0, %p0, -1;")[7], 0xaaaaaaaau);
  EXPECT_EQ(results_of(odd + "vote.sync.ballot.b32 %r0, !%p0, -1;")[7], 0x55555555u);
  EXPECT_EQ(results_of(odd + "vote.sync.any.pred %p1, %p0, -1; selp.b32 %r0, 7, 8, %p1;")[0], 7u);
  EXPECT_EQ(results_of(odd + "vote.sync.all.pred %p1, %p0, -1; selp.b32 %r0, 7, 8, %p1;")[1], 8u);
  const auto same = results_of("shr.u32 %r1, %thread, 2; match.any.sync.b32 %r0, %r1, -1;");
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(same[lane], 0xfu << lane / 4 * 4);
  EXPECT_EQ(results_of("redux.sync.add.u32 %r0, %thread, -1;")[3], 31u * 16);
  EXPECT_EQ(results_of("redux.sync.or.b32 %r0, %thread, -1;")[3], 31u);
  EXPECT_EQ(results_of("add.u32 %r1, %thread, 32; redux.sync.and.b32 %r0, %r1, -1;")[3], 32u);
  EXPECT_EQ(results_of("sub.u32 %r1, %thread, 5; redux.sync.min.s32 %r0, %r1, -1;")[3],
            0xfffffffbu);
  EXPECT_EQ(results_of("sub.u32 %r1, %thread, 5; redux.sync.max.u32 %r0, %r1, -1;")[3],
            0xffffffffu);
  EXPECT_EQ(results_of("activemask.b32 %r0;", {20})[3], (1u << 20) - 1);
}

// Halves of a warp may each name themselves in one instruction: none hears of the other's lanes.
TEST(PtxWarps, MembersAreOfTheLanesOwnMask) {
  const std::string halves =
      "setp.lt.u32 %p0, %thread, 16; selp.b32 %r9, 0xffff, 0xffff0000, %p0; setp.eq.u32 %p1, 0, "
      "0;\n";
  const auto ballot = results_of(halves + "vote.sync.ballot.b32 %r0, %p1, %r9;");
  const auto sum = results_of(halves + "redux.sync.add.u32 %r0, %thread, %r9;");
  const auto match = results_of(halves + "mov.u32 %r1, 4; match.any.sync.b32 %r0, %r1, %r9;");
  const auto all =
      results_of(halves + "vote.sync.all.pred %p2, %p0, %r9; selp.b32 %r0, 1, 0, %p2;");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(ballot[lane], lane < 16 ? 0xffffu : 0xffff0000u) << lane;
    EXPECT_EQ(sum[lane], lane < 16 ? 120u : 376u) << lane;
    EXPECT_EQ(match[lane], lane < 16 ? 0xffffu : 0xffff0000u) << lane;
    EXPECT_EQ(all[lane], lane < 16) << lane;
  }
}

// The lanes of an odd number take another way, and are waited for.
TEST(PtxWarps, WaitsForTheMembers) {
  const std::string apart =
      "and.b32 %r1, %thread, 1; setp.eq.u32 %p0, %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;\n"
      "@%p0 bra MEET;\nLOOP: add.u32 %r3, %r3, %thread; add.u32 %r2, %r2, 1;\n"
      "setp.lt.u32 %p1, %r2, %thread;\n@%p1 bra LOOP;\nMEET:\n";
  const auto sum = results_of(apart + "redux.sync.add.u32 %r0, %r3, -1;");
  uint32_t want = 0;
  for (uint32_t lane = 1; lane < 32; lane += 2) want += lane * lane;
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(sum[lane], want) << lane;
  const auto neighbour = results_of(apart + "shfl.sync.bfly.b32 %r0, %r3, 1, 31, -1;");
  EXPECT_EQ(neighbour[30], 31u * 31);
  EXPECT_EQ(results_of(apart + "match.any.sync.b32 %r0, %r2, -1;")[0], 0x55555555u);
}

TEST(PtxWarps, OnlyTheLanesOfABranchTakePart) {
  const auto results = results_of(
      "mov.u32 %r0, 0; setp.ge.u32 %p0, %thread, 8;\n@%p0 bra OUT;\nsetp.eq.u32 %p1, 0, 0;\n"
      "vote.sync.ballot.b32 %r0, %p1, 0xff;\nshfl.sync.idx.b32 %r1, %thread, 7, 31, 0xff;\n"
      "add.u32 %r0, %r0, %r1;\nOUT:");
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(results[lane], lane < 8 ? 0xffu + 7 : 0);
}

TEST(PtxWarpsDeathTest, AShuffleOfALaneThatTakesNoPart) {
  EXPECT_DEATH(results_of("setp.ge.u32 %p0, %thread, 8;\n@%p0 bra OUT;\n"
                          "shfl.sync.idx.b32 %r0, %thread, 9, 31, 0xff;\nOUT:"),
               "shfl of lane 9, which takes no part\n  at kernel, line 20");
}

TEST(PtxWarpsDeathTest, LanesThatWaitForEachOtherApart) {
  EXPECT_DEATH(results_of("setp.ge.u32 %p0, %thread, 8;\n@%p0 bra OUT;\nbar.warp.sync -1;\nexit;\n"
                          "OUT:\nbar.warp.sync -1;"),
               "lanes wait for each other apart, in lines 20 20 .* 23 23");
}

}  // namespace
}  // namespace ringside::ptx
