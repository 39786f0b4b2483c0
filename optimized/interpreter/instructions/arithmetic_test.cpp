// Against values that the PTX ISA's words give.
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

using testing::bits;
using testing::Case;
using testing::check;
using testing::kAll32, testing::kAll64, testing::kLow32, testing::kLow64;

constexpr uint64_t kHigh32 = 0x7fffffff;
constexpr float kInf = std::numeric_limits<float>::infinity(), kTiny = 0x1p-149f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint64_t kCanonical = 0x7fffffff;

TEST(PtxArithmetic, IntegersWrap) {
  check("add.s32 %d4, %a4, %b4;", {{kHigh32, 1, 0, kLow32}, {kAll32, 1, 0, 0}});
  check("add.s64 %d8, %a8, %b8;", {{kAll64 / 2, 1, 0, kLow64}, {kAll32, 1, 0, kAll32 + 1}});
  check("sub.s32 %d4, %a4, %b4;", {{kLow32, 1, 0, kHigh32}, {0, 1, 0, kAll32}});
  check("sub.s16 %d2, %a2, %b2;", {{0x8000, 1, 0, 0x7fff}});
  check("mul.lo.s32 %d4, %a4, %b4;", {{0x10001, 0x10001, 0, 0x20001}, {kAll32, 7, 0, kAll32 - 6}});
  check("mul.lo.s16 %d2, %a2, %b2;", {{0xffff, 0xffff, 0, 1}, {0x101, 0x101, 0, 0x201}});
  check("mul.lo.s64 %d8, %a8, %b8;", {{kAll64, kAll64, 0, 1}, {kAll32, kAll32, 0, ~0x1fffffffeu}});
  check("mad.lo.s32 %d4, %a4, %b4, %c4;", {{kAll32, 3, 5, 2}, {1 << 16, 1 << 16, 9, 9}});
  check("neg.s32 %d4, %a4;", {{kLow32, 0, 0, kLow32}, {5, 0, 0, kAll32 - 4}, {0, 0, 0, 0}});
  check("abs.s64 %d8, %a8;", {{kLow64, 0, 0, kLow64}, {kAll64 - 4, 0, 0, 5}, {7, 0, 0, 7}});
}

TEST(PtxArithmetic, WideProductsKeepTheirSigns) {
  check("mul.wide.s32 %d8, %a4, %b4;",
        {{kAll32, 2, 0, kAll64 - 1}, {kLow32, kLow32, 0, kLow64 / 2}});
  check("mul.wide.u32 %d8, %a4, %b4;", {{kAll32, 2, 0, 0x1fffffffe}});
  check("mul.wide.s16 %d4, %a2, %b2;", {{0xffff, 3, 0, kAll32 - 2}});
  check("mul.wide.u16 %d4, %a2, %b2;", {{0xffff, 3, 0, 0x2fffd}});
}

// What a division by 0 gives is the machine's affair: it must only not end the process.
TEST(PtxArithmetic, DivisionTruncatesAndNeverTraps) {
  check("div.s32 %d4, %a4, %b4;",
        {{kAll32 - 6, 2, 0, kAll32 - 2}, {7, kAll32 - 1, 0, kAll32 - 2}, {kLow32, 1, 0, kLow32}});
  check("rem.s32 %d4, %a4, %b4;", {{kAll32 - 6, 2, 0, kAll32}, {7, kAll32 - 1, 0, 1}});
  check("div.u32 %d4, %a4, %b4;", {{kAll32, 2, 0, kHigh32}, {kLow32, kAll32, 0, 0}});
  check("rem.u32 %d4, %a4, %b4;", {{kAll32, 10, 0, 5}, {kLow32, kAll32, 0, kLow32}});
  check("div.s64 %d8, %a8, %b8;",
        {{kAll64 - 6, 2, 0, kAll64 - 2}, {kLow64, 2, 0, 3 * (kLow64 / 2)}});
  check("rem.s64 %d8, %a8, %b8;", {{kAll64 - 6, 4, 0, kAll64 - 2}});
  check("div.u64 %d8, %a8, %b8;", {{kAll64, 3, 0, kAll64 / 3}});
  for (const std::string op : {"div", "rem"}) {
    check(op + ".s32 %d4, %a4, %b4; mov.b32 %d4, 1;", {{kLow32, kAll32, 0, 1}, {5, 0, 0, 1}});
    check(op + ".s64 %d8, %a8, %b8; mov.b64 %d8, 1;", {{kLow64, kAll64, 0, 1}, {5, 0, 0, 1}});
    check(op + ".u32 %d4, %a4, %b4; mov.b32 %d4, 1;", {{5, 0, 0, 1}});
  }
}

TEST(PtxArithmetic, SignsDecideWhichIsLess) {
  check("min.s32 %d4, %a4, %b4;", {{kAll32, 1, 0, kAll32}, {kLow32, kHigh32, 0, kLow32}});
  check("max.s32 %d4, %a4, %b4;", {{kAll32, 1, 0, 1}, {kLow32, kHigh32, 0, kHigh32}});
  check("min.u32 %d4, %a4, %b4;", {{kAll32, 1, 0, 1}, {kLow32, kHigh32, 0, kHigh32}});
  check("min.s64 %d8, %a8, %b8;", {{kAll64, 1, 0, kAll64}, {kAll32, kAll64, 0, kAll64}});
  check("max.s64 %d8, %a8, %b8;", {{kAll64, 1, 0, 1}, {kAll32, kAll64, 0, kAll32}});
}

// "If one of the inputs is NaN the result is the other; +0.0 > -0.0"; with .NaN it is canonical
// NaN.
TEST(PtxArithmetic, LeastAndGreatestOfFloats) {
  const uint64_t one = bits(1.0f), nan = bits(kNan), plus = bits(0.0f), minus = bits(-0.0f);
  check("max.f32 %d4, %a4, %b4;", {{one, nan, 0, one},
                                   {nan, one, 0, one},
                                   {0xffc12345, 0x7f800001, 0, kCanonical},
                                   {plus, minus, 0, plus},
                                   {minus, plus, 0, plus},
                                   {bits(-kInf), bits(-1.0f), 0, bits(-1.0f)}});
  check("min.f32 %d4, %a4, %b4;", {{one, nan, 0, one},
                                   {nan, one, 0, one},
                                   {nan, nan, 0, kCanonical},
                                   {plus, minus, 0, minus},
                                   {minus, plus, 0, minus},
                                   {bits(kTiny), plus, 0, plus}});
  check("max.NaN.f32 %d4, %a4, %b4;", {{one, 0xffc00001, 0, kCanonical},
                                       {0x7f800001, one, 0, kCanonical},
                                       {minus, plus, 0, plus},
                                       {one, bits(2.0f), 0, bits(2.0f)}});
}

TEST(PtxArithmetic, FloatsRoundOnceAndKeepSubnormals) {
  check("add.f32 %d4, %a4, %b4;", {{bits(1.0f), bits(0x1p-24f), 0, bits(1.0f)},
                                   {bits(1.0f), bits(0x1.8p-24f), 0, bits(0x1.000002p0f)},
                                   {bits(kInf), bits(-kInf), 0, kCanonical},
                                   {bits(kTiny), bits(kTiny), 0, bits(2 * kTiny)}});
  check("mul.f32 %d4, %a4, %b4;", {{bits(0.0f), bits(kInf), 0, kCanonical},
                                   {bits(0x1p-100f), bits(0x1p-40f), 0, bits(0x1p-140f)},
                                   {bits(-0.0f), bits(2.0f), 0, bits(-0.0f)}});
  check("div.rn.f32 %d4, %a4, %b4;", {{bits(1.0f), bits(3.0f), 0, 0x3eaaaaab},
                                      {bits(-1.0f), bits(0.0f), 0, bits(-kInf)},
                                      {bits(0.0f), bits(0.0f), 0, kCanonical}});
  check("sub.f64 %d8, %a8, %b8;", {{bits(1.0), bits(0x1p-54), 0, bits(1.0)}});
  check("rcp.rn.f32 %d4, %a4;", {{bits(3.0f), 0, 0, 0x3eaaaaab}, {bits(-0.0f), 0, 0, bits(-kInf)}});
  check("neg.f32 %d4, %a4;", {{bits(0.0f), 0, 0, bits(-0.0f)}, {bits(-2.0f), 0, 0, bits(2.0f)}});
  check("abs.f32 %d4, %a4;", {{bits(-0.0f), 0, 0, 0}, {bits(-kInf), 0, 0, bits(kInf)}});
  check("copysign.f32 %d4, %a4, %b4;",  // a's sign, b's size
        {{bits(-0.0f), bits(3.0f), 0, bits(-3.0f)}, {bits(1.0f), bits(-3.0f), 0, bits(3.0f)}});
}

// With .ftz what is below the normal numbers is 0 of its sign, before and behind.
TEST(PtxArithmetic, FlushesSubnormalsWhereAsked) {
  check("ex2.approx.ftz.f32 %d4, %a4;", {{bits(-127.0f), 0, 0, 0},
                                         {bits(-126.0f), 0, 0, bits(0x1p-126f)},
                                         {bits(-kInf), 0, 0, 0},
                                         {bits(kInf), 0, 0, bits(kInf)},
                                         {bits(kNan), 0, 0, kCanonical},
                                         {bits(-0.0f), 0, 0, bits(1.0f)},
                                         {bits(3.0f), 0, 0, bits(8.0f)}});
  check("rcp.approx.ftz.f32 %d4, %a4;", {{bits(-0x1p-130f), 0, 0, bits(-kInf)},
                                         {bits(0x1p127f), 0, 0, 0},
                                         {bits(4.0f), 0, 0, bits(0.25f)}});
}

TEST(PtxArithmetic, FmaRoundsOnce) {
  const float a = 0x1.000002p0f;  // a*a = 1 + 2^-22 + 2^-46
  check("fma.rn.f32 %d4, %a4, %b4, %c4;", {{bits(a), bits(a), bits(-0x1.000004p0f), bits(0x1p-46f)},
                                           {bits(0.0f), bits(kInf), bits(1.0f), kCanonical}});
  check("fma.rm.f32 %d4, %a4, %b4, %c4;",
        {{bits(a), bits(a), bits(0.0f), bits(0x1.000004p0f)},
         {bits(-a), bits(a), bits(0.0f), bits(-0x1.000006p0f)},
         {bits(1.0f), bits(1.0f), bits(-0x1p-80f), bits(0x1.fffffep-1f)},  // far below a double's
         {bits(-1.0f), bits(1.0f), bits(-0x1p-140f), bits(-0x1.000002p0f)},
         {bits(1.0f), bits(1.0f), bits(0x1p-80f), bits(1.0f)},
         {bits(0x1.fffffep127f), bits(2.0f), bits(0.0f), bits(0x1.fffffep127f)},
         {bits(kInf), bits(1.0f), bits(0.0f), bits(kInf)},
         {bits(kNan), bits(1.0f), bits(0.0f), kCanonical},
         {bits(0.5f), bits(2.0f), bits(1.0f), bits(2.0f)}});
}

// A product of halves and their sum with a third round once, not by way of float32.
TEST(PtxArithmetic, PairsOfHalvesRoundOnce) {
  // 1.5 * (1 + 2^-7) and 1.5 * (1 + 3 * 2^-7) lie between two of bfloat16; 2^-40 says which.
  const uint64_t a = 0x3fc03fc0, b = 0x3f813f83, more = 0x2b802b80, less = 0xab80ab80;
  check("fma.rn.bf16x2 %d4, %a4, %b4, %c4;",
        {{a, b, 0, 0x3fc23fc4}, {a, b, more, 0x3fc23fc5}, {a, b, less, 0x3fc13fc4}});
  // 1.5 * (1 + 2^-10) of float16, 2^-24 more or less
  check("fma.rn.f16x2 %d4, %a4, %b4, %c4;",
        {{0x3e003e00, 0x3c013c03, 0x80018001, 0x3e013e04}, {0x3e00, 0x3c03, 1, 0x3e05}});
  check("add.rn.bf16x2 %d4, %a4, %b4;", {{0x3f803f80, 0x3b80bb80, 0, 0x3f803f7f}});
  check("mul.rn.f16x2 %d4, %a4, %b4;", {{0x3c014000, 0x3c017c00, 0, 0x3c027c00}});
}

struct Relation {
  const char* name;
  bool less, equal, greater, unordered;  // what is true of each
};

template <typename T>
void check_relations(const std::string& type, const std::vector<Relation>& relations,
                     const std::vector<T>& numbers) {
  for (const Relation& each : relations) {
    std::vector<Case> cases;
    for (const T a : numbers)
      for (const T b : numbers) {
        const bool want = a < b    ? each.less
                          : a > b  ? each.greater
                          : a == b ? each.equal
                                   : each.unordered;
        cases.push_back({0, 0, 0, want});
        std::memcpy(&cases.back().a, &a, sizeof a);
        std::memcpy(&cases.back().b, &b, sizeof b);
      }
    const std::string w = std::to_string(sizeof(T));
    check("setp." + std::string(each.name) + "." + type + " %p, %a" + w + ", %b" + w +
              "; selp.b32 %d4, 1, 0, %p;",
          cases);
  }
}

const std::vector<Relation> kSigned = {
    {"eq", false, true, false, false}, {"ne", true, false, true, false},
    {"lt", true, false, false, false}, {"le", true, true, false, false},
    {"gt", false, false, true, false}, {"ge", false, true, true, false}};

TEST(PtxComparisons, OfIntegers) {
  check_relations<int32_t>("s32", kSigned, {0, 1, -1, INT32_MIN, INT32_MAX});
  check_relations<int64_t>("s64", kSigned, {0, 1, -1, INT64_MIN, INT64_MAX, int64_t{1} << 32});
  check_relations<int16_t>("s16", kSigned, {0, 1, -1, INT16_MIN, INT16_MAX});
  std::vector<Relation> relations = kSigned;
  for (const Relation& more : {Relation{"lo", true, false, false, false},
                               {"ls", true, true, false, false},
                               {"hi", false, false, true, false},
                               {"hs", false, true, true, false}})
    relations.push_back(more);
  check_relations<uint32_t>("u32", relations, {0, 1, 0x7fffffff, 0x80000000, 0xffffffff});
  check_relations<uint64_t>("u64", relations, {0, 1, 0xffffffff, uint64_t{1} << 63, ~uint64_t{0}});
  check_relations<uint16_t>("u16", relations, {0, 1, 0x7fff, 0x8000, 0xffff});
}

TEST(PtxComparisons, OfFloatsWithNan) {
  std::vector<Relation> relations = kSigned;
  for (Relation each : kSigned) {
    static const std::vector<std::string> kNames = {"equ", "neu", "ltu", "leu", "gtu", "geu"};
    each.unordered = true;
    each.name = kNames[relations.size() - kSigned.size()].c_str();
    relations.push_back(each);
  }
  relations.push_back({"num", true, true, true, false});
  relations.push_back({"nan", false, false, false, true});
  const std::vector<float> floats = {0.0f, -0.0f, 1, -1, kTiny, kInf, -kInf, kNan, -kNan};
  check_relations<float>("f32", relations, floats);
  check_relations<double>("f64", relations, {floats.begin(), floats.end()});
}

}  // namespace
}  // namespace ringside::ptx
