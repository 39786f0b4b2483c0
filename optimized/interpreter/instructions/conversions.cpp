// Between types of numbers, and between kinds of addresses.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "optimized/interpreter/instructions/operations.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

template <typename T>
auto number_of(T x) {
  if constexpr (kIsHalf<T>)
    return to_float(x);
  else
    return x;
}

template <typename To, typename From, auto Round>
After cvt(Warp& warp, const Inst& i) {
  const auto* from = warp.row<Cell<From>>(i.o[1]);
  auto* to = warp.row<Cell<To>>(i.o[0]);
  each_lane(warp, [&](int lane) {
    const To number = convert<To>(Round(number_of(from_cell<From>(from[lane]))));
    if constexpr (std::is_integral_v<To> && sizeof(To) < 4)  // extended to the register's bytes
      to[lane] = i.imm == 4 ? static_cast<uint32_t>(number) : static_cast<uint16_t>(number);
    else
      to[lane] = to_cell<To>(number);
  });
  return After::next;
}

constexpr auto kAsItIs = [](auto x) { return x; };

template <typename To, typename From>
Handler to_whole_number(const Statement& s) {
  if (s.has("rni")) return cvt<To, From, [](auto x) { return std::nearbyint(x); }>;
  if (s.has("rmi")) return cvt<To, From, [](auto x) { return std::floor(x); }>;
  if (s.has("rpi")) return cvt<To, From, [](auto x) { return std::ceil(x); }>;
  if (s.has("rzi")) return cvt<To, From, [](auto x) { return std::trunc(x); }>;
  return nullptr;
}

template <typename To>
constexpr auto kClamped = [](auto x) {
  if (std::cmp_less(x, std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return std::cmp_less(std::numeric_limits<To>::max(), x) ? std::numeric_limits<To>::max()
                                                          : static_cast<To>(x);
};

template <typename To, typename From>
Handler saturated() {
  if constexpr (std::is_integral_v<To> && std::is_integral_v<From>)
    return cvt<To, From, kClamped<To>>;
  if constexpr (std::is_floating_point_v<To> && std::is_floating_point_v<From>)
    return cvt<To, From, [](From x) { return 0 < x ? std::min(x, From{1}) : From{0}; }>;
  return nullptr;
}

template <typename To, typename From>
Handler conversion(const Statement& s) {
  constexpr bool kFraction = std::is_floating_point_v<From> || kIsHalf<From>;
  if constexpr (kFraction && (std::is_integral_v<To> || std::is_same_v<To, From>))
    if (const Handler whole = to_whole_number<To, From>(s))
      return s.has("sat") && !std::is_integral_v<To> ? nullptr : whole;
  return s.has("sat") ? saturated<To, From>() : cvt<To, From, kAsItIs>;
}

template <typename H>
After cvt_pair(Warp& warp, const Inst& i) {
  const auto *high = warp.row<float>(i.o[1]), *low = warp.row<float>(i.o[2]);
  write_row<uint32_t>(warp, i.o[0], [=](int lane) {
    return uint32_t{from_float<H>(high[lane]).bits} << 16 | from_float<H>(low[lane]).bits;
  });
  return After::next;
}

void decode_cvt(Builder& b, Inst& i, Statement& s) {
  const std::string &from = s.type(), &to = s.parts.at(s.parts.size() - 2);
  for (const char* part : {"rz", "rm", "rp", "rna", "relu", "satfinite", "ftz"})
    if (s.has(part)) return;
  if (to.ends_with("16x2")) {
    if (from != "f32" || s.has("sat")) return;
    b.rows(i, s, 0, 3, 4);
    i.run = to == "f16x2" ? cvt_pair<Float16> : cvt_pair<BFloat16>;
    return;
  }
  b.row(i, 0, s.operands.at(0), width_of(to));
  b.row(i, 1, s.operands.at(1), width_of(from));
  i.imm = s.operands[0].width;
  with_type(to, [&]<typename To>() {
    with_type(from, [&]<typename From>() { i.run = conversion<To, From>(s); });
  });
}

uint64_t begin_of_shared(const Warp& warp, int) {
  return reinterpret_cast<uint64_t>(warp.block->shared.get());
}
uint64_t begin_of_local(const Warp& warp, int lane) {
  return reinterpret_cast<uint64_t>(warp.local.data()) +
         static_cast<uint64_t>(lane) * warp.block->function->local_bytes;
}

template <auto Begin, bool IsGeneric>
After address_of(Warp& warp, const Inst& i) {
  const auto* from = warp.row<uint64_t>(i.o[1]);
  write_row<uint64_t>(warp, i.o[0], [&](int lane) {
    return IsGeneric ? from[lane] - Begin(warp, lane) : from[lane] + Begin(warp, lane);
  });
  return After::next;
}

void decode_cvta(Builder& b, Inst& i, Statement& s) {
  b.rows(i, s, 0, 2, 8);
  const bool is_generic = s.parts[1] == "to";
  const std::string& space = s.parts[is_generic ? 2 : 1];
  if (space == "shared")
    i.run = is_generic ? address_of<begin_of_shared, true> : address_of<begin_of_shared, false>;
  else if (space == "local")
    i.run = is_generic ? address_of<begin_of_local, true> : address_of<begin_of_local, false>;
  else
    i.run = copy_of_width(8);
}

}  // namespace

Decoders conversion_decoders() { return {{"cvt", decode_cvt}, {"cvta", decode_cvta}}; }

}  // namespace ringside::ptx
