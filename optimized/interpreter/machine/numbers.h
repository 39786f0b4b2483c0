// Numbers as a GPU has them: cells of rows, 16-bit types, one NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "optimized/interpreter/machine/code.h"

namespace ringside::ptx {

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

constexpr uint32_t kNanBits = 0x7fffffff;  // of arithmetic; a half's is 0x7fff

inline float to_float(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

inline float to_float(Float16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16, rest = (x.bits & 0x7fffu) << 13;
  const bool finite = (x.bits & 0x7c00) != 0x7c00;
  const uint32_t bits =
      finite ? std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f) : rest | 0x7f800000u;
  return std::bit_cast<float>(bits | sign);
}

inline BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return {0x7fff};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

inline Float16 to_float16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  uint32_t half = 0x7c00;  // too large, or infinite
  if (x != x)
    return {0x7fff};
  else if (size < 0x38800000)  // below 2^-14: multiples of 2^-24
    half = static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(size) * 0x1p24f));
  else if (size < 0x477ff000)  // below 65520
    half = (size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13;
  return {static_cast<uint16_t>(half | sign)};
}

// A sum and what is missing in it.
struct ExactSum {
  double sum, error;

  ExactSum(double a, double b) : sum(a + b) {
    const double of_b = sum - a;
    error = (a - (sum - of_b)) + (b - of_b);
  }
  // Its last bit says that it is not exact, so that rounding once more is as if rounding once.
  double to_odd() const {
    const auto bits = std::bit_cast<uint64_t>(sum);
    if (error == 0 || error != error || (bits & 1) != 0) return sum;
    return std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
  }
};

inline float to_odd(long double x) {
  const auto nearest = static_cast<float>(x);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if (nearest == x || x != x || std::isinf(nearest) || (bits & 1) != 0) return nearest;
  return std::bit_cast<float>(std::fabs(nearest) < std::fabs(x) ? bits + 1 : bits - 1);
}

template <typename T>
T from_float(float x) {
  if constexpr (std::is_same_v<T, Float16>)
    return to_float16(x);
  else if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(x);
  else
    return static_cast<T>(x);
}

template <typename H>
H from_wide(long double x) {
  return from_float<H>(to_odd(x));
}

// Types of at most 32 bits lie in cells of 32, the smaller ones in their low bits.
template <typename T>
using Cell = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <typename T>
T from_cell(Cell<T> cell) {
  if constexpr (sizeof(T) >= 4)
    return std::bit_cast<T>(cell);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<T>(static_cast<uint16_t>(cell));
  else
    return static_cast<T>(cell);
}

template <typename T>
Cell<T> to_cell(T x) {
  if constexpr (std::is_same_v<T, float>)
    return x != x ? kNanBits : std::bit_cast<uint32_t>(x);
  else if constexpr (sizeof(T) >= 4)
    return std::bit_cast<Cell<T>>(x);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<uint16_t>(x);
  else
    return static_cast<Cell<T>>(x);
}

// To the nearest, integers clamped; NaN becomes 0, or where one type has 64 bits only the highest.
template <typename To, typename From>
To convert(From x) {
  if constexpr (kIsHalf<From>) {
    return convert<To>(to_float(x));
  } else if constexpr (kIsHalf<To>) {
    return from_wide<To>(static_cast<long double>(x));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    const auto wide = static_cast<long double>(x);
    constexpr bool kWide = sizeof(To) == 8 || sizeof(From) == 8;
    if (x != x) return kWide ? static_cast<To>(uint64_t{1} << (sizeof(To) * 8 - 1)) : To{0};
    if (wide <= static_cast<long double>(Limits::min())) return Limits::min();
    if (wide >= static_cast<long double>(Limits::max())) return Limits::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// Calls f.operator()<T>() with the type that PTX calls so.
template <typename F>
void with_type(const std::string& name, F f) {
  if (name == "b8" || name == "u8") return f.template operator()<uint8_t>();
  if (name == "s8") return f.template operator()<int8_t>();
  if (name == "b16" || name == "u16") return f.template operator()<uint16_t>();
  if (name == "s16") return f.template operator()<int16_t>();
  if (name == "b32" || name == "u32") return f.template operator()<uint32_t>();
  if (name == "s32") return f.template operator()<int32_t>();
  if (name == "b64" || name == "u64") return f.template operator()<uint64_t>();
  if (name == "s64") return f.template operator()<int64_t>();
  if (name == "f32") return f.template operator()<float>();
  if (name == "f64") return f.template operator()<double>();
  if (name == "f16") return f.template operator()<Float16>();
  if (name == "bf16") return f.template operator()<BFloat16>();
  fail("unknown type " + name);
}

}  // namespace ringside::ptx
