// Against values that the PTX ISA's words give.
#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

using testing::check;
using testing::kAll32, testing::kAll64, testing::kLow32, testing::kLow64;
using testing::launch;
using testing::results_of;

TEST(PtxBits, ShiftsBeyondTheWidthAreClamped) {
  check("shl.b32 %d4, %a4, %b4;",
        {{1, 31, 0, kLow32}, {3, 32, 0, 0}, {3, 33, 0, 0}, {3, kAll32, 0, 0}, {5, 0, 0, 5}});
  check("shr.u32 %d4, %a4, %b4;", {{kLow32, 31, 0, 1}, {kAll32, 32, 0, 0}, {kAll32, 256, 0, 0}});
  check("shr.s32 %d4, %a4, %b4;", {{kLow32, 31, 0, kAll32},
                                   {kLow32, 32, 0, kAll32},
                                   {kLow32 - 1, 99, 0, 0},
                                   {kAll32 - 3, 1, 0, kAll32 - 1}});
  check("shl.b64 %d8, %a8, %b4;", {{1, 63, 0, kLow64}, {1, 64, 0, 0}, {1, 32, 0, kAll32 + 1}});
  check("shr.s64 %d8, %a8, %b4;", {{kLow64, 200, 0, kAll64}, {kLow64, 63, 0, kAll64}});
  check("shr.u64 %d8, %a8, %b4;", {{kLow64, 63, 0, 1}, {kAll64, 64, 0, 0}});
  check("shl.b16 %d2, %a2, %b4;", {{0x8001, 1, 0, 2}, {1, 16, 0, 0}});
  check("shr.s16 %d2, %a2, %b4;", {{0x8000, 15, 0, 0xffff}, {0x8000, 77, 0, 0xffff}});
}

TEST(PtxBits, FunnelShiftsWrap) {  // a is the low word, b the high one
  check("shf.l.wrap.b32 %d4, %a4, %b4, %c4;",
        {{0x89abcdef, 0x01234567, 8, 0x23456789}, {7, 9, 0, 9}, {7, 9, 32, 9}, {kLow32, 0, 33, 1}});
  check("shf.r.wrap.b32 %d4, %a4, %b4, %c4;",
        {{0x89abcdef, 0x01234567, 8, 0x6789abcd}, {7, 9, 0, 7}, {7, 9, 64, 7}, {0, 1, 1, kLow32}});
}

TEST(PtxBits, LogicOfWords) {
  check("and.b32 %d4, %a4, %b4;", {{0xff00ff00, 0x0ff00ff0, 0, 0x0f000f00}});
  check("or.b64 %d8, %a8, %b8;", {{kLow64, 1, 0, kLow64 + 1}});
  check("xor.b32 %d4, %a4, %b4;", {{0xff00ff00, 0x0ff00ff0, 0, 0xf0f0f0f0}});
  check("not.b64 %d8, %a8;", {{0, 0, 0, kAll64}, {kAll32, 0, 0, ~kAll32}});
  check("and.b16 %d2, %a2, 255;", {{0x1234, 0, 0, 0x34}});
}

TEST(PtxBits, CountsAndFinds) {
  check("popc.b32 %d4, %a4;", {{kAll32, 0, 0, 32}, {0, 0, 0, 0}, {0x80010, 0, 0, 2}});
  check("popc.b64 %d4, %a8;", {{kAll64, 0, 0, 64}});
  check("clz.b32 %d4, %a4;", {{0, 0, 0, 32}, {1, 0, 0, 31}, {kAll32, 0, 0, 0}});
  check("brev.b32 %d4, %a4;", {{1, 0, 0, kLow32}, {0x0000ffee, 0, 0, 0x77ff0000}});
  check("brev.b64 %d8, %a8;", {{2, 0, 0, kLow64 / 2}});
  check("bfind.u32 %d4, %a4;", {{0, 0, 0, kAll32}, {1, 0, 0, 0}, {0x40000001, 0, 0, 30}});
  check("bfind.shiftamt.u32 %d4, %a4;", {{0, 0, 0, kAll32}, {1, 0, 0, 31}, {kLow32, 0, 0, 0}});
}

TEST(PtxBits, InsertsAndMasks) {
  check(
      ".reg .b32 %at, %n; and.b32 %at, %c4, 255; shr.u32 %n, %c4, 8;"
      "bfi.b32 %d4, %a4, %b4, %at, %n;",  // c: count, place
      {{0xabcd, kAll32, 0x0804, 0xfffffcdf},
       {0xabcd, 0x11111111, 0x0010, 0x11111111},
       {0xabcd, 0x11111111, 0x0820, 0x11111111},
       {0xabcd, 0x11111111, 0x2018, 0xcd111111},
       {0xabcd, 0x11111111, 0xff00, 0xabcd}});
  check("bfi.b64 %d8, %a8, %b8, 32, 16;", {{0xfedcba, 0, 0, uint64_t{0xdcba} << 32}});
  check("bmsk.clamp.b32 %d4, %a4, %b4;", {{4, 8, 0, 0xff0},
                                          {0, 32, 0, kAll32},
                                          {0, 99, 0, kAll32},
                                          {28, 8, 0, 0xf0000000},
                                          {32, 4, 0, 0},
                                          {3, 0, 0, 0}});
}

TEST(PtxBits, PermutesBytesAndTheirSigns) {
  check("prmt.b32 %d4, %a4, %b4, %c4;", {{0x33221100, 0x77665544, 0x3210, 0x33221100},
                                         {0x33221100, 0x77665544, 0x7654, 0x77665544},
                                         {0x33221100, 0x77665544, 0x0426, 0x00442266},
                                         {0x80007fff, 0x00000080, 0xb9c8, 0xff00ffff},
                                         {0x33221100, 0x77665544, 0xffff1111, 0x11111111}});
}

TEST(PtxBits, MovesPackAndUnpack) {
  check("mov.b64 %d8, {%a4, %b4};", {{1, 2, 0, 0x200000001}});
  check("mov.b64 {%d4, _}, %a8;", {{0x200000001, 0, 0, 1}});
  check("mov.b64 {_, %d4}, %a8;", {{0x200000001, 0, 0, 2}});
  check("mov.b32 %d4, {%a2, %b2};", {{0xffff8001, 0x7002, 0, 0x70028001}});
  check("mov.b32 {%b2, %c2}, %a4; mov.b32 %d4, {%c2, %b2};", {{0x12345678, 0, 0, 0x56781234}});
  check("mov.b64 %d8, {%a2, %b2, %c2, %a2};", {{1, 2, 3, 0x1000300020001}});
  check("mov.b16 %c2, -1; mov.b32 %d4, {%c2, %a2};", {{5, 0, 0, 0x5ffff}});
  check("mov.b32 %d4, 0f40490FDB;", {{0, 0, 0, 0x40490fdb}});
  check("mov.b64 %d8, 0d3FF0000000000000;", {{0, 0, 0, 0x3ff0000000000000}});
  check("mov.b32 %d4, 0x1FU; mov.b32 %c4, 010; add.s32 %d4, %d4, %c4;", {{0, 0, 0, 39}});
}

TEST(PtxBits, ChoosesByPredicates) {
  const std::string ask = "setp.ne.b32 %p, %a4, 0; setp.ne.b32 %q, %b4, 0;";
  const auto of = [&](const std::string& what, uint64_t neither, uint64_t b, uint64_t a,
                      uint64_t both) {
    check(ask + what + "selp.b32 %d4, 1, 0, %p;",
          {{0, 0, 0, neither}, {0, 1, 0, b}, {1, 0, 0, a}, {1, 1, 0, both}});
  };
  of("and.pred %p, %p, %q;", 0, 0, 0, 1);
  of("or.pred %p, %p, %q;", 0, 1, 1, 1);
  of("xor.pred %p, %p, %q;", 0, 1, 1, 0);
  of("not.pred %p, %q;", 1, 0, 1, 0);
  of("mov.pred %p, %q;", 0, 1, 0, 1);
  of("and.pred %p, %p, !%q;", 0, 0, 1, 0);
  check(ask + "selp.b64 %d8, %a8, %b8, %p;", {{0, 9, 0, 9}, {kLow64 + 1, 9, 0, kLow64 + 1}});
  check(ask + "selp.b16 %d2, %a2, 7, !%p;", {{0, 9, 0, 0}, {5, 9, 0, 7}});
}

TEST(PtxBits, GuardsLeaveOtherLanesAlone) {
  const auto results = results_of(
      "mov.u32 %r0, 100; setp.lt.u32 %p0, %thread, 5;\n@%p0 mov.u32 %r0, %thread;\n"
      "setp.gt.u32 %p1, %thread, 20;\n@!%p0 add.s32 %r0, %r0, 1;\n@%p1 setp.eq.u32 %p0, 0, 0;\n"
      "@%p0 add.s32 %r0, %r0, 1000;");
  for (uint32_t lane = 0; lane < 32; ++lane)
    EXPECT_EQ(results[lane], lane < 5 ? lane + 1000 : lane > 20 ? 1101 : 101) << lane;
}

// Where a row is shared, what is written only under a guard must not lose what was there.
TEST(PtxBits, GuardedWritesKeepValuesAlive) {
  const auto results = results_of(
      "add.u32 %r1, %thread, 7; mov.u32 %r2, 3; add.u32 %r3, %r2, %r2; mov.u32 %r4, %r3;\n"
      "setp.eq.u32 %p0, %thread, 9;\n@%p0 mov.u32 %r1, %r4;\nmov.u32 %r0, %r1;");
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(results[lane], lane == 9 ? 6 : lane + 7);
}

TEST(PtxBitsDeathTest, RefusesPartsOfOtherSizes) {
  EXPECT_DEATH(results_of("mov.b32 %r0, {%rs0, %rs1, %rs2, %rs3};"),
               "no such instruction: mov.b32");
  EXPECT_DEATH(results_of("prmt.b32.f4e %r0, %r1, %r2, %r3;"), "no such instruction: prmt.b32.f4e");
  EXPECT_DEATH(results_of("shf.l.clamp.b32 %r0, %r1, %r2, %r3;"),
               "no such instruction: shf.l.clamp");
}

}  // namespace
}  // namespace ringside::ptx
