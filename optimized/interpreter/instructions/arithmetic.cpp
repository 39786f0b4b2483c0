// Sums, products, comparisons and choices.
#include <algorithm>
#include <cmath>

#include "optimized/interpreter/instructions/operations.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

template <typename T>
Handler integer_operation(const std::string& op) {
  using U = std::make_unsigned_t<T>;
  constexpr T kLowest = static_cast<T>(-1);  // -1, or the largest
  if (op == "add") return binary<[](T a, T b) { return U(U(a) + U(b)); }, T, T, T>;
  if (op == "sub") return binary<[](T a, T b) { return U(U(a) - U(b)); }, T, T, T>;
  if (op == "mul") return binary<[](T a, T b) { return U(uint64_t(a) * uint64_t(b)); }, T, T, T>;
  if (op == "min") return binary<[](T a, T b) { return std::min(a, b); }, T, T, T>;
  if (op == "max") return binary<[](T a, T b) { return std::max(a, b); }, T, T, T>;
  if (op == "div")
    return binary<[](T a, T b) {
      if (b == 0) return kLowest;
      if (std::is_signed_v<T> && b == kLowest) return static_cast<T>(U(0) - U(a));
      return static_cast<T>(a / b);
    },
                  T, T, T>;
  if (op == "rem")
    return binary<[](T a, T b) {
      if (b == 0) return a;
      if (std::is_signed_v<T> && b == kLowest) return T{0};
      return static_cast<T>(a % b);
    },
                  T, T, T>;
  return nullptr;
}

// A number beside NaN is larger and smaller; +0 is larger than -0.
template <typename T>
T larger(T a, T b) {
  if (a != a || b != b) return a != a ? b : a;
  return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
}
template <typename T>
T smaller(T a, T b) {
  if (a != a || b != b) return a != a ? b : a;
  return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
}
template <auto F>
constexpr auto kOrNan = [](auto a, auto b) {
  return a != a ? a : b != b ? b : F(a, b);
};

// Modifiers that nothing here follows.
bool rounds_otherwise(const Statement& s) {
  for (const char* part : {"rz", "rm", "rp", "sat", "relu", "ftz", "cc", "xorsign", "oob"})
    if (s.has(part)) return true;
  return false;
}

template <typename T>
Handler float_operation(const std::string& op, bool nan) {
  if (op == "add") return binary<[](T a, T b) { return a + b; }, T, T, T>;
  if (op == "sub") return binary<[](T a, T b) { return a - b; }, T, T, T>;
  if (op == "mul") return binary<[](T a, T b) { return a * b; }, T, T, T>;
  if (op == "div") return binary<[](T a, T b) { return a / b; }, T, T, T>;
  if (op == "copysign") return binary<[](T a, T b) { return std::copysign(b, a); }, T, T, T>;
  if (op == "min") return nan ? binary<kOrNan<smaller<T>>, T, T, T> : binary<smaller<T>, T, T, T>;
  if (op == "max") return nan ? binary<kOrNan<larger<T>>, T, T, T> : binary<larger<T>, T, T, T>;
  return nullptr;
}

template <typename H, auto F>
After of_pairs(Warp& warp, const Inst& i) {  // both halves of 32 bits
  const auto* a = warp.row<uint32_t>(i.o[1]);
  const auto* b = warp.row<uint32_t>(i.o[2]);
  const auto* c = i.slot[3] == Slot::row ? warp.row<uint32_t>(i.o[3]) : a;
  write_row<uint32_t>(warp, i.o[0], [=](int lane) {
    uint32_t both = 0;
    for (int shift = 0; shift < 32; shift += 16) {
      const auto half = [=](const uint32_t* row) {
        return to_float(H{static_cast<uint16_t>(row[lane] >> shift)});
      };
      both |= uint32_t{F(half(a), half(b), half(c))} << shift;
    }
    return both;
  });
  return After::next;
}

template <typename H>
Handler pair_operation(const Statement& s) {
  const std::string& op = s.parts[0];
  if (op == "fma")
    return of_pairs<H, [](float a, float b, float c) {
      return from_wide<H>(ExactSum(double{a} * double{b}, double{c}).to_odd()).bits;
    }>;
  if (op == "add")
    return of_pairs<H, [](float a, float b, float) { return from_float<H>(a + b).bits; }>;
  if (op == "mul")
    return of_pairs<H, [](float a, float b, float) { return from_float<H>(a * b).bits; }>;
  if (op == "set" && s.parts[1] == "eq" && s.parts[2] == "u32")
    return of_pairs<H, [](float a, float b, float) { return uint16_t(a == b ? 0xffff : 0); }>;
  if (op == "set" && s.parts[1] == "eq")
    return of_pairs<H, [](float a, float b, float) { return from_float<H>(a == b ? 1 : 0).bits; }>;
  return nullptr;
}

// Whether two are equal, as 1 or 0.
void decode_set(Builder& b, Inst& i, Statement& s) {
  if (s.opcode != "set.eq.f32.f32") return;
  b.rows(i, s, 0, 3, 4);
  i.run = binary<[](float x, float y) { return x == y ? 1.0f : 0.0f; }, float, float, float>;
}

void decode_pair(Builder& b, Inst& i, Statement& s) {
  if (s.parts[0] == "set" && !s.type().ends_with("16x2")) return decode_set(b, i, s);
  if (s.type() != "f16x2" && s.type() != "bf16x2") return;
  if (rounds_otherwise(s)) return;
  b.rows(i, s, 0, s.operands.size(), 4);
  i.run = s.type() == "f16x2" ? pair_operation<Float16>(s) : pair_operation<BFloat16>(s);
}

template <typename Wide, typename Narrow>
Handler wide_product() {
  return binary<[](Narrow a, Narrow b) { return Wide(Wide(a) * Wide(b)); }, Wide, Narrow, Narrow>;
}

void decode_wide_product(Builder& b, Inst& i, Statement& s) {
  const int width = width_of(s.type());
  b.row(i, 0, s.operands[0], std::max(2 * width, 4));
  b.rows(i, s, 1, 3, width);
  if (s.type() == "s32") i.run = wide_product<int64_t, int32_t>();
  if (s.type() == "u32") i.run = wide_product<uint64_t, uint32_t>();
  if (s.type() == "s16") i.run = wide_product<int32_t, int16_t>();
  if (s.type() == "u16") i.run = wide_product<uint32_t, uint16_t>();
}

void decode_operation(Builder& b, Inst& i, Statement& s) {
  if (s.type().ends_with("16x2")) return decode_pair(b, i, s);
  if (s.parts[1] == "wide") return decode_wide_product(b, i, s);
  if (s.parts[1] == "hi" || rounds_otherwise(s)) return;
  b.rows(i, s, 0, 3, width_of(s.type()));
  with_type(s.type(), [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) i.run = integer_operation<T>(s.parts[0]);
    if constexpr (std::is_floating_point_v<T>) i.run = float_operation<T>(s.parts[0], s.has("NaN"));
  });
}

float fma_down(float a, float b, float c) {
  const ExactSum exact(double{a} * double{b}, double{c});
  const float nearest = std::fma(a, b, c);
  if (nearest == 0 && exact.sum == 0 && exact.error == 0)  // -0, unless all are +0
    return std::signbit(double{a} * double{b}) || std::signbit(c) ? -0.0f : 0.0f;
  if (std::isinf(c) || !std::isfinite(double{a} * double{b})) return nearest;
  const bool above = nearest > exact.sum || (nearest == exact.sum && exact.error < 0);
  return above ? std::nextafter(nearest, -INFINITY) : nearest;
}

void decode_fma(Builder& b, Inst& i, Statement& s) {
  if (s.type().ends_with("16x2")) return decode_pair(b, i, s);
  const bool down = s.opcode == "fma.rm.f32";
  if ((s.parts[0] == "mad" && s.parts[1] != "lo") || (rounds_otherwise(s) && !down)) return;
  b.rows(i, s, 0, 4, width_of(s.type()));
  with_type(s.type(), [&]<typename T>() {
    if constexpr (std::is_integral_v<T>)
      i.run = ternary<[](T x, T y, T z) { return uint64_t(x) * uint64_t(y) + uint64_t(z); }, T, T,
                      T, T>;
    if constexpr (std::is_floating_point_v<T>)
      i.run = ternary<[](T x, T y, T z) { return std::fma(x, y, z); }, T, T, T, T>;
  });
  if (down) i.run = ternary<fma_down, float, float, float, float>;
}

template <typename T, auto F>
After compare(Warp& warp, const Inst& i) {
  const auto* a = warp.row<Cell<T>>(i.o[1]);
  const auto* b = warp.row<Cell<T>>(i.o[2]);
  uint32_t lanes = 0;
  for (int lane = 0; lane < 32; ++lane)
    lanes |= uint32_t{F(from_cell<T>(a[lane]), from_cell<T>(b[lane]))} << lane;
  warp.set_predicate(i.o[0], lanes);
  return After::next;
}

template <typename T>
Handler comparison(const std::string& how) {  // a u behind it: or one of them is NaN
  if (how == "eq") return compare<T, [](T a, T b) { return a == b; }>;
  if (how == "ne") return compare<T, [](T a, T b) { return a < b || b < a; }>;
  if (how == "lt" || how == "lo") return compare<T, [](T a, T b) { return a < b; }>;
  if (how == "le" || how == "ls") return compare<T, [](T a, T b) { return a <= b; }>;
  if (how == "gt" || how == "hi") return compare<T, [](T a, T b) { return b < a; }>;
  if (how == "ge" || how == "hs") return compare<T, [](T a, T b) { return b <= a; }>;
  if (how == "equ") return compare<T, [](T a, T b) { return !(a < b || b < a); }>;
  if (how == "neu") return compare<T, [](T a, T b) { return a != b; }>;
  if (how == "ltu") return compare<T, [](T a, T b) { return !(b <= a); }>;
  if (how == "leu") return compare<T, [](T a, T b) { return !(b < a); }>;
  if (how == "gtu") return compare<T, [](T a, T b) { return !(a <= b); }>;
  if (how == "geu") return compare<T, [](T a, T b) { return !(a < b); }>;
  if (how == "nan") return compare<T, [](T a, T b) { return a != a || b != b; }>;
  if (how == "num") return compare<T, [](T a, T b) { return a == a && b == b; }>;
  return nullptr;
}

void decode_setp(Builder& b, Inst& i, Statement& s) {
  if (s.parts.size() != 3) return;
  b.predicate(i, 0, s.operands.at(0));
  b.rows(i, s, 1, 3, width_of(s.type()));
  with_type(s.type(), [&]<typename T>() {
    if constexpr (!kIsHalf<T>) i.run = comparison<T>(s.parts[1]);
  });
}

template <typename T>
After choose(Warp& warp, const Inst& i) {
  const T *a = warp.row<T>(i.o[1]), *b = warp.row<T>(i.o[2]);
  const uint32_t lanes = warp.predicate(i.o[3]);
  write_row<T>(warp, i.o[0],
               [=](int lane) { return (lanes >> lane & 1) != 0 ? a[lane] : b[lane]; });
  return After::next;
}

void decode_selp(Builder& b, Inst& i, Statement& s) {
  b.rows(i, s, 0, 3, width_of(s.type()));
  b.predicate(i, 3, s.operands.at(3));
  i.run = width_of(s.type()) == 8 ? choose<uint64_t> : choose<uint32_t>;
}

template <typename T>
Handler function_of_one(const std::string& op) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    if (op == "neg") return unary<[](T a) { return U(U(0) - U(a)); }, T, T>;
    if (op == "abs") return unary<[](T a) { return a < 0 ? U(U(0) - U(a)) : U(a); }, T, T>;
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (op == "neg") return unary<[](T a) { return -a; }, T, T>;
    if (op == "abs") return unary<[](T a) { return std::fabs(a); }, T, T>;
    if (op == "ex2") return unary<[](T a) { return std::exp2(a); }, T, T>;
    if (op == "lg2") return unary<[](T a) { return std::log2(a); }, T, T>;
    if (op == "rcp") return unary<[](T a) { return 1 / a; }, T, T>;
    if (op == "sqrt") return unary<[](T a) { return std::sqrt(a); }, T, T>;
    if (op == "rsqrt") return unary<[](T a) { return 1 / std::sqrt(a); }, T, T>;
    if (op == "tanh") return unary<[](T a) { return std::tanh(a); }, T, T>;
  }
  return nullptr;
}

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

void decode_function_of_one(Builder& b, Inst& i, Statement& s) {
  b.rows(i, s, 0, 2, width_of(s.type()));
  if (s.opcode == "ex2.approx.ftz.f32")
    i.run = unary<[](float a) { return flushed(std::exp2(flushed(a))); }, float, float>;
  if (s.opcode == "rcp.approx.ftz.f32")
    i.run = unary<[](float a) { return flushed(1 / flushed(a)); }, float, float>;
  if (i.run != nullptr || rounds_otherwise(s)) return;
  with_type(s.type(), [&]<typename T>() { i.run = function_of_one<T>(s.parts[0]); });
}

}  // namespace

Decoders arithmetic_decoders() {
  Decoders all = {{"fma", decode_fma},
                  {"mad", decode_fma},
                  {"set", decode_pair},
                  {"setp", decode_setp},
                  {"selp", decode_selp}};
  for (const char* op : {"add", "sub", "mul", "min", "max", "div", "rem", "copysign"})
    all[op] = decode_operation;
  for (const char* op : {"neg", "abs", "ex2", "lg2", "rcp", "sqrt", "rsqrt", "tanh"})
    all[op] = decode_function_of_one;
  return all;
}

}  // namespace ringside::ptx
