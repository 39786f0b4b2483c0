// Conversions against exact arithmetic on integers, of every half and around every rounding.
#include <cmath>
#include <limits>
#include <random>

#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

using testing::Array;
using testing::bits;
using testing::Case;
using testing::check;
using testing::kAll32, testing::kAll64, testing::kLow32, testing::kLow64;

struct Format {
  int mantissa, most;  // bits; the largest exponent
};
constexpr Format kFloat16{10, 15}, kBFloat16{7, 127};

// The value of a half's bits but its sign's, by its definition; beyond the last one infinity, which
// is to rounding what would come next.
double value_of(uint32_t size, Format f) {
  const int exponent = static_cast<int>(size >> f.mantissa);
  const double fraction = std::ldexp(size & ((1u << f.mantissa) - 1), -f.mantissa);
  return exponent == 0 ? std::ldexp(fraction, 1 - f.most)
                       : std::ldexp(1 + fraction, exponent - f.most);
}

// The nearest half, of two that are as near the even one: by search, with no arithmetic on bits.
uint32_t nearest(double x, Format f) {
  if (x != x) return 0x7fff;
  const uint32_t sign = std::signbit(x) ? 0x8000 : 0, infinite = (2u * f.most + 1) << f.mantissa;
  uint32_t low = 0, high = infinite;
  x = std::fabs(x);
  if (x >= value_of(infinite, f)) return sign | infinite;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value_of(middle, f) <= x ? low : high) = middle;
  }
  const long double below = static_cast<long double>(x) - value_of(low, f);
  const long double above = static_cast<long double>(value_of(high, f)) - x;
  const bool up = above < below || (above == below && (high & 1) == 0);
  return sign | (up ? high : low);
}

// Around each half and each middle of two, and what a seed draws.
std::vector<float> numbers_around(Format f) {
  std::vector<float> all = {0, std::numeric_limits<float>::infinity(), std::nanf(""), 0x1p-149f,
                            std::numeric_limits<float>::max()};
  for (uint32_t half = 0; half <= ((2u * f.most + 1) << f.mantissa); half += half % 16 == 0 ? 1 : 5)
    for (const double x : {value_of(half, f), (value_of(half, f) + value_of(half + 1, f)) / 2}) {
      const auto y = static_cast<float>(x);
      for (const float z : {y, std::nextafter(y, INFINITY), std::nextafter(y, 0.0f)})
        all.push_back(z);
    }
  std::mt19937 random(7);
  for (int k = 0; k < 2000; ++k)
    all.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (size_t k = 0; k < all.size(); k += 2) all[k] = -all[k];
  while (all.size() % 1024 != 0) all.push_back(1);
  return all;
}

void check_rounding(const std::string& type, Format f) {
  const std::vector<float> numbers = numbers_around(f);
  const Array<float> in(numbers);
  const Array<uint32_t> one(numbers.size(), 0), two(numbers.size(), 0);
  testing::launch(testing::load_mine("%r1", 0) + "cvt.rn." + type + ".f32 %rs0, %r1;\n" +
                      "mov.b32 %r2, {%rs0, 0};\nneg.f32 %r3, %r1;\ncvt.rn." + type +
                      "x2.f32 %r4, %r1, %r3;\n" + testing::store_mine("%r2", 1) +
                      testing::store_mine("%r4", 2),
                  {in.address(), one.address(), two.address()},
                  {1024, static_cast<unsigned>(numbers.size() / 1024)});
  for (size_t k = 0; k < numbers.size(); ++k) {
    const uint32_t want = nearest(numbers[k], f), minus = want == 0x7fff ? want : want ^ 0x8000;
    ASSERT_EQ(one[k], want) << std::hexfloat << type << " of " << numbers[k];
    ASSERT_EQ(two[k], want << 16 | minus) << std::hexfloat << type << "x2 of " << numbers[k];
  }
}

TEST(PtxConversions, Float32RoundsToHalves) {
  check_rounding("f16", kFloat16);
  check_rounding("bf16", kBFloat16);
}

void check_widening(const std::string& type, Format f) {
  const Array<uint32_t> out(65536, 0);
  testing::launch(
      "cvt.u16.u32 %rs0, %me; cvt.f32." + type + " %r0, %rs0;" + testing::store_mine("%r0"),
      {out.address()}, {1024, 64});
  const uint32_t infinite = (2u * f.most + 1) << f.mantissa;
  for (uint32_t half = 0; half < 65536; ++half) {
    const uint32_t size = half & 0x7fff;
    if (size > infinite) {
      ASSERT_EQ(out[half], 0x7fffffffu) << type << half;
      continue;
    }
    const float want = size == infinite ? INFINITY : static_cast<float>(value_of(size, f));
    ASSERT_EQ(out[half], bits(half == size ? want : -want)) << type << half;
  }
}

TEST(PtxConversions, HalvesBecomeFloat32Exactly) {
  check_widening("f16", kFloat16);
  check_widening("bf16", kBFloat16);
}

TEST(PtxConversions, WiderNumbersRoundOnce) {
  const double tie = 1 + 0x1p-8, more = tie + 0x1p-40, low = 1 + 0x1p-11;  // halves of last bits
  check("cvt.rn.bf16.s32 %d2, %a4;", {{0x40400000, 0, 0, 0x4e80},
                                      {0x40400001, 0, 0, 0x4e81},
                                      {0xbfbfffff, 0, 0, 0xce81},
                                      {0, 0, 0, 0}});
  check("cvt.rn.f16.f64 %d2, %a8;", {{bits(low), 0, 0, 0x3c00},
                                     {bits(low + 0x1p-40), 0, 0, 0x3c01},
                                     {bits(-low - 0x1p-50), 0, 0, 0xbc01},
                                     {bits(1e300), 0, 0, 0x7c00}});
  check("cvt.rn.bf16.f64 %d2, %a8;", {{bits(tie), 0, 0, 0x3f80}, {bits(more), 0, 0, 0x3f81}});
  check("cvt.rn.f32.f64 %d4, %a8;", {{bits(1 + 0x1p-24), 0, 0, bits(1.0f)},
                                     {bits(1 + 0x1.8p-24), 0, 0, bits(0x1.000002p0f)},
                                     {bits(1e300), 0, 0, bits(INFINITY)}});
  check("cvt.rn.f32.s64 %d4, %a8;", {{kAll64, 0, 0, bits(-1.0f)}, {kLow64, 0, 0, bits(-0x1p63f)}});
  check("cvt.rn.f32.s32 %d4, %a4;",
        {{0x1000001, 0, 0, bits(0x1p24f)}, {kAll32, 0, 0, bits(-1.0f)}});
  check("cvt.rn.f32.u32 %d4, %a4;", {{kAll32, 0, 0, bits(0x1p32f)}});
  check("cvt.rn.f64.u32 %d8, %a4;", {{kAll32, 0, 0, bits(4294967295.0)}});
  check("cvt.f64.f32 %d8, %a4;", {{bits(0x1p-149f), 0, 0, bits(0x1p-149)}});
}

TEST(PtxConversions, FloatsBecomeIntegersClamped) {
  const uint64_t nan = bits(std::nanf("")), infinity = bits(INFINITY);
  check("cvt.rzi.s32.f32 %d4, %a4;", {{bits(-1.9f), 0, 0, kAll32},
                                      {bits(3e9f), 0, 0, kLow32 - 1},
                                      {bits(-3e9f), 0, 0, kLow32},
                                      {nan, 0, 0, 0},
                                      {infinity, 0, 0, kLow32 - 1}});
  check("cvt.rni.s32.f32 %d4, %a4;", {{bits(2.5f), 0, 0, 2}, {bits(3.5f), 0, 0, 4}});
  check("cvt.rmi.s32.f32 %d4, %a4;", {{bits(-0.5f), 0, 0, kAll32}, {bits(1.9f), 0, 0, 1}});
  check("cvt.rpi.s32.f32 %d4, %a4;", {{bits(-0.5f), 0, 0, 0}, {bits(1.1f), 0, 0, 2}});
  check("cvt.rzi.u32.f32 %d4, %a4;", {{bits(-5.0f), 0, 0, 0}, {bits(5e9f), 0, 0, kAll32}});
  check("cvt.rzi.u8.f32 %d2, %a4;", {{bits(300.0f), 0, 0, 255}, {bits(-3.0f), 0, 0, 0}});
  check("cvt.rzi.s64.f32 %d8, %a4;", {{infinity, 0, 0, kLow64 - 1}, {nan, 0, 0, kLow64}});
  check("cvt.rzi.u64.f32 %d8, %a4;", {{infinity, 0, 0, kAll64}, {nan, 0, 0, kLow64}});
  check("cvt.rzi.s32.f64 %d4, %a8;",
        {{bits(std::nan("")), 0, 0, kLow32}, {bits(-7.9), 0, 0, kAll32 - 6}});
  check("cvt.rni.f32.f32 %d4, %a4;",
        {{bits(-2.5f), 0, 0, bits(-2.0f)}, {bits(1e30f), 0, 0, bits(1e30f)}});
  check("cvt.rni.s32.f16 %d4, %a2;",
        {{0x4100, 0, 0, 2}, {0x4300, 0, 0, 4}, {0xbe00, 0, 0, kAll32 - 1}});
  check("cvt.rpi.s32.bf16 %d4, %a2;", {{0x3fa0, 0, 0, 2}, {0xff80, 0, 0, kLow32}});
  check("cvt.rni.f16.f16 %d2, %a2;", {{0x4100, 0, 0, 0x4000}, {0x4380, 0, 0, 0x4400}});
}

TEST(PtxConversions, SaturatesWhereAsked) {
  check("cvt.sat.f32.f32 %d4, %a4;", {{bits(-1.0f), 0, 0, 0},
                                      {bits(0.25f), 0, 0, bits(0.25f)},
                                      {bits(7.0f), 0, 0, bits(1.0f)},
                                      {bits(std::nanf("")), 0, 0, 0},
                                      {bits(-0.0f), 0, 0, 0}});
  check("cvt.sat.u8.s32 %d2, %a4;", {{300, 0, 0, 255}, {kAll32, 0, 0, 0}, {77, 0, 0, 77}});
  check("cvt.sat.s8.s32 %d2, %a4;", {{300, 0, 0, 127}, {kLow32, 0, 0, 0xff80}, {77, 0, 0, 77}});
  check("cvt.sat.s32.u32 %d4, %a4;", {{kAll32, 0, 0, kLow32 - 1}, {5, 0, 0, 5}});
  check("cvt.sat.u32.s64 %d4, %a8;", {{kAll64, 0, 0, 0}, {kLow64 - 1, 0, 0, kAll32}});
}

TEST(PtxConversions, IntegersAreCutAndExtended) {
  check("cvt.s64.s32 %d8, %a4;", {{kLow32, 0, 0, ~(kLow32 - 1)}, {5, 0, 0, 5}});
  check("cvt.u64.u32 %d8, %a4;", {{kAll32, 0, 0, kAll32}});
  check("cvt.u32.u64 %d4, %a8;", {{0x123456789abcdef0, 0, 0, 0x9abcdef0}});
  check("cvt.u32.u16 %d4, %a2;", {{0x1ffff, 0, 0, 0xffff}});
  check("cvt.s32.s16 %d4, %a2;", {{0x8000, 0, 0, 0xffff8000}});
  check("cvt.s32.s8 %d4, %a4;", {{0x180, 0, 0, 0xffffff80}, {0x17f, 0, 0, 0x7f}});
  check("cvt.u32.u8 %d4, %a2;", {{0x180, 0, 0, 0x80}});
  check("cvt.u16.u32 %d2, %a4;", {{0x12345678, 0, 0, 0x5678}});
  check("cvt.s8.s32 %d4, %a4;", {{0x180, 0, 0, 0xffffff80}});  // extended to the register's width
  check("cvt.u8.u32 %d4, %a4;", {{0x1ff, 0, 0, 0xff}});
  check("cvt.s16.s32 %d4, %a4;", {{0x18000, 0, 0, 0xffff8000}});
}

TEST(PtxConversionsDeathTest, RefusesOtherRoundings) {
  for (const std::string op : {"cvt.rz.bf16.f32 %rs0, %r0;", "cvt.rz.f32.f64 %r0, %rd0;",
                               "cvt.rn.relu.f16.f32 %rs0, %r0;", "cvt.rz.bf16x2.f32 %r0, %r1, %r2;",
                               "cvt.rm.f32.s32 %r0, %r1;", "cvt.ftz.f64.f32 %rd0, %r1;"})
    EXPECT_DEATH(testing::results_of(op), "no such instruction: " + op.substr(0, op.find(' ')));
}

}  // namespace
}  // namespace ringside::ptx
