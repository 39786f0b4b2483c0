// Barriers of threads, mbarriers, and what is reported where they are never completed.
#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

using testing::results_of;

const std::string kWord = ".shared .align 8 .b8 word[8];\n.shared .align 4 .b8 flags[512];\n";
const std::string kInit =
    "mov.u32 %r1, word; setp.eq.u32 %p0, %thread, 0;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], ";

TEST(PtxBarriers, ThreadsSeeWhatOthersWroteBefore) {
  const auto results = results_of(
      "shl.b32 %r1, %thread, 2; mov.u32 %r2, flags; add.u32 %r1, %r1, %r2;\n"
      "st.shared.u32 [%r1], %thread;\nbar.sync 0;\nxor.b32 %r3, %thread, 96; shl.b32 %r3, %r3, 2;\n"
      "add.u32 %r3, %r3, %r2; ld.shared.u32 %r0, [%r3];",
      {128}, kWord);
  for (uint32_t k = 0; k < 128; ++k) EXPECT_EQ(results[k], k ^ 96) << k;
}

TEST(PtxBarriers, AskAllThreads) {
  const std::string last = "setp.eq.u32 %p0, %thread, 127; setp.ne.u32 %p3, %thread, 200;\n";
  const auto any =
      results_of(last + "bar.red.or.pred %p1, 0, %p0; selp.b32 %r0, 1, 0, %p1;", {128});
  const auto every = results_of(last +
                                    "bar.red.and.pred %p1, 0, %p3; bar.red.and.pred %p2, 0, !%p0;\n"
                                    "selp.b32 %r0, 1, 0, %p1; @%p2 mov.u32 %r0, 9;",
                                {128});
  for (uint32_t k = 0; k < 128; ++k) EXPECT_EQ(any[k] * 10 + every[k], 11u) << k;
}

TEST(PtxBarriers, PhasesFollowEachOther) {
  const auto results = results_of(
      kInit +
          "64;\nbar.sync 0;\nmov.u32 %r0, 0;\nAGAIN: and.b32 %r2, %r0, 1;\n"
          "mbarrier.arrive.shared::cta.b64 %rd10, [%r1];\n"
          "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;\n@!%p1 bra WAIT;\n"
          "add.u32 %r0, %r0, 1; setp.lt.u32 %p2, %r0, 9;\n@%p2 bra AGAIN;",
      {64}, kWord);
  for (const uint32_t each : results) EXPECT_EQ(each, 9u);
}

TEST(PtxBarriersDeathTest, WhatIsNeverCompletedIsReported) {
  EXPECT_DEATH(results_of("setp.lt.u32 %p0, %thread, 32;\n@%p0 bar.sync 1, 64;", {64}),
               "nothing moves in kernel\n  kernel, line 19 .*warp 0");
  EXPECT_DEATH(
      results_of(kInit + "2;\nbar.sync 0;\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
                         "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n"
                         "@!%p1 bra WAIT;",
                 {32}, kWord),
      "nothing moves in kernel");
}

// Whoever waits has come by the same way as the others, but for barriers that allow for others.
TEST(PtxBarriersDeathTest, AlignedOnesAreMetAtOnePlace) {
  const auto at_two_places = [](const std::string& wait) {
    return "setp.lt.u32 %p0, %thread, 32;\n@%p0 bra FIRST;\n" + wait +
           " 1, 64;\nbra DONE;\nFIRST: " + wait + " 1, 64;\nDONE: mov.u32 %r0, 7;";
  };
  for (const char* wait : {"bar.sync", "barrier.sync.aligned"})
    EXPECT_DEATH(results_of(at_two_places(wait), {64}), "aligned barrier, at which others wait");
  for (const uint32_t each : results_of(at_two_places("barrier.sync"), {64})) EXPECT_EQ(each, 7u);
}

// One instruction of a function that two places call is two ways, too.
TEST(PtxBarriersDeathTest, AlignedOnesAreMetByTheSameCalls) {
  const auto function = [](const std::string& wait) {
    return ".func waits()\n{\n" + wait + " 1, 64;\nret;\n}\n";
  };
  const std::string call = "{\ncall.uni waits, ();\n}\n";
  const std::string first = "setp.lt.u32 %p0, %thread, 32;\n@%p0 bra FIRST;\n";
  const std::string by_two =
      first + call + "bra DONE;\nFIRST: mov.u32 %r1, 0;\n" + call + "DONE: mov.u32 %r0, 7;";
  EXPECT_DEATH(results_of(by_two, {64}, function("bar.sync")), "at which others wait elsewhere");
  for (const uint32_t each : results_of(by_two, {64}, function("barrier.sync")))
    EXPECT_EQ(each, 7u);
  for (const uint32_t each : results_of(call + "mov.u32 %r0, 7;", {64}, function("bar.sync")))
    EXPECT_EQ(each, 7u);
}

TEST(PtxBarriersDeathTest, MoreArrivalsThanExpected) {
  EXPECT_DEATH(results_of(kInit + "2;\nbar.sync 0;\nmbarrier.arrive.shared::cta.b64 _, [%r1], 3;",
                          {32}, kWord),
               "more arrivals than the 2 expected\n  at kernel, line 23");
}

// Of two barriers, each of two threads, some in these lines.
std::vector<uint32_t> at_two_barriers(const std::string& lines) {
  return results_of("setp.eq.u32 %p1, %thread, 32;\n" + kInit +
                        "2;\nadd.u32 %r2, %r1, 8;\n"
                        "@%p0 mbarrier.init.shared::cta.b64 [%r2], 2;\nbar.sync 0;\n" +
                        lines + "mov.u32 %r0, 7;",
                    {64}, ".shared .align 8 .b8 word[16];\n");
}
const std::string kFirst = "mbarrier.arrive.shared::cta.b64 _, [%r1];\n";
const std::string kSecond = "mbarrier.arrive.shared::cta.b64 _, [%r2];\n";
const std::string kAsk = "mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1], 0;\n";

// Of two warps the second, who waits for nobody, comes twice before the first has come.
TEST(PtxBarriersDeathTest, WhoIsAheadDoesNotCountForOthers) {
  const std::string of_next_lane = "setp.eq.u32 %p2, %thread, 33;\n@%p2 " + kSecond;
  for (const std::string& between : {std::string(), of_next_lane})
    for (const uint32_t each : at_two_barriers("@%p1 " + kFirst + between + "@%p1 " + kFirst))
      EXPECT_EQ(each, 7u);
  EXPECT_DEATH(at_two_barriers("@%p1 " + kFirst + "@%p1 " + kSecond + "@%p1 " + kFirst),
               "comes to an mbarrier again before the phase has ended\n  at kernel, .*warp 1");
}

TEST(PtxBarriersDeathTest, SomebodyAsksForEachPhase) {
  const std::string one_phase = "@%p1 " + kFirst + "@%p1 " + kFirst;
  for (const uint32_t each : at_two_barriers(one_phase + "@%p1 " + kAsk + one_phase))
    EXPECT_EQ(each, 7u);
  for (const uint32_t each : at_two_barriers("@%p1 " + kAsk + one_phase + one_phase))
    EXPECT_EQ(each, 7u);
  EXPECT_DEATH(at_two_barriers(one_phase + one_phase), "nobody has asked for the phase before");
}

TEST(PtxBarriersDeathTest, AccessOutside) {
  EXPECT_DEATH(results_of("ld.global.u32 %r0, [%rd0+256];"), "is outside of an allocation");
  EXPECT_DEATH(results_of("ld.global.u32 %r0, [%rd0+2];"), "misaligned address");
  EXPECT_DEATH(results_of("mov.u32 %r1, 520; ld.shared.u32 %r0, [%r1];", {}, kWord + ""),
               "beyond shared memory: 0x208");
  EXPECT_DEATH(results_of("mov.u32 %r1, 2; st.shared.u32 [%r1], 1;", {32, 1, 64}),
               "misaligned shared address 0x2");
  EXPECT_DEATH(results_of("frobnicate.u32 %r0, 1;"),
               "no such instruction: frobnicate.u32 at kernel, line 18");
}

}  // namespace
}  // namespace ringside::ptx
