// Bits, shifts, moves and predicates.
#include <algorithm>
#include <bit>

#include "optimized/interpreter/instructions/operations.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

template <typename T>
Handler logical(const std::string& op) {
  if (op == "and") return binary<[](T a, T b) { return T(a & b); }, T, T, T>;
  if (op == "or") return binary<[](T a, T b) { return T(a | b); }, T, T, T>;
  if (op == "xor") return binary<[](T a, T b) { return T(a ^ b); }, T, T, T>;
  return unary<[](T a) { return T(~a); }, T, T>;
}

Handler logical_of_predicates(const std::string& op) {
  if (op == "and") return of_predicates<[](uint32_t a, uint32_t b) { return a & b; }>;
  if (op == "or") return of_predicates<[](uint32_t a, uint32_t b) { return a | b; }>;
  if (op == "xor") return of_predicates<[](uint32_t a, uint32_t b) { return a ^ b; }>;
  if (op == "not") return of_predicates<[](uint32_t a, uint32_t) { return ~a; }>;
  return of_predicates<[](uint32_t a, uint32_t) { return a; }>;
}

void decode_predicates(Builder& b, Inst& i, Statement& s) {
  b.predicate(i, 0, s.operands.at(0));
  b.predicate(i, 1, s.operands.at(1));
  b.predicate(i, 2, s.operands.back());
  i.run = logical_of_predicates(s.parts[0]);
}

void decode_logical(Builder& b, Inst& i, Statement& s) {
  if (s.type() == "pred") return decode_predicates(b, i, s);
  const int width = width_of(s.type());
  b.rows(i, s, 0, s.operands.size(), width);
  i.run = width == 8   ? logical<uint64_t>(s.parts[0])
          : width == 4 ? logical<uint32_t>(s.parts[0])
                       : logical<uint16_t>(s.parts[0]);
}

template <typename T>
Handler shift(bool left) {
  constexpr uint32_t kBits = sizeof(T) * 8;
  using U = std::make_unsigned_t<T>;
  if (left)
    return binary<[](T a, uint32_t by) { return by < kBits ? U(U(a) << by) : U(0); }, T, T,
                  uint32_t>;
  return binary<[](T a, uint32_t by) {
    if (by < kBits) return static_cast<T>(a >> by);
    return static_cast<T>(std::is_signed_v<T> && a < 0 ? -1 : 0);
  },
                T, T, uint32_t>;
}

void decode_shift(Builder& b, Inst& i, Statement& s) {
  b.rows(i, s, 0, 2, width_of(s.type()));
  b.row(i, 2, s.operands.at(2), 4);
  with_type(s.type(), [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) i.run = shift<T>(s.parts[0] == "shl");
  });
}

void decode_funnel_shift(Builder& b, Inst& i, Statement& s) {
  b.rows(i, s, 0, 4, 4);
  using U = uint32_t;
  if (s.opcode == "shf.l.wrap.b32")
    i.run = ternary<[](U low, U high, U by) {
      return U((uint64_t{high} << 32 | low) << (by & 31) >> 32);
    },
                    U, U, U, U>;
  if (s.opcode == "shf.r.wrap.b32")
    i.run =
        ternary<[](U low, U high, U by) { return U((uint64_t{high} << 32 | low) >> (by & 31)); }, U,
                U, U, U>;
}

template <typename Whole, typename Part>
After unpack(Warp& warp, const Inst& i) {
  const auto* whole = warp.row<Whole>(i.o[1]);
  const int32_t* parts = warp.list(i);
  each_lane(warp, [&](int lane) {
    const Whole bits = whole[lane];
    for (int k = 0; k < i.list_size; ++k)
      warp.row<uint32_t>(parts[k])[lane] = static_cast<Part>(bits >> sizeof(Part) * 8 * k);
  });
  return After::next;
}

template <typename Whole, typename Part>
After pack(Warp& warp, const Inst& i) {
  auto* whole = warp.row<Whole>(i.o[0]);
  const int32_t* parts = warp.list(i);
  each_lane(warp, [&](int lane) {
    Whole bits = 0;
    for (int k = 0; k < i.list_size; ++k)
      bits |= Whole{static_cast<Part>(warp.row<uint32_t>(parts[k])[lane])} << sizeof(Part) * 8 * k;
    whole[lane] = bits;
  });
  return After::next;
}

Handler packing(bool packs, int width, size_t parts) {
  if (width == 4 && parts == 2)
    return packs ? pack<uint32_t, uint16_t> : unpack<uint32_t, uint16_t>;
  if (width == 8 && parts == 2)
    return packs ? pack<uint64_t, uint32_t> : unpack<uint64_t, uint32_t>;
  if (width != 8 || parts != 4) return nullptr;
  return packs ? pack<uint64_t, uint16_t> : unpack<uint64_t, uint16_t>;
}

void decode_mov(Builder& b, Inst& i, Statement& s) {
  if (s.type() == "pred") return decode_predicates(b, i, s);
  const int width = width_of(s.type());
  const Operand &to = s.operands.at(0), &from = s.operands.at(1);
  if (to.kind == Operand::Kind::list) {
    i.writes = kWritesList;
    b.row(i, 1, from, width);
    b.list(i, to, 4);
    i.run = packing(false, width, to.list.size());
  } else if (from.kind == Operand::Kind::list) {
    i.writes = 1 | kReadsList;
    b.row(i, 0, to, width);
    b.list(i, from, 4);
    i.run = packing(true, width, from.list.size());
  } else {
    b.rows(i, s, 0, 2, width);
    i.run = copy_of_width(width);
  }
}

uint32_t permuted(uint32_t low, uint32_t high, uint32_t choice) {
  const uint64_t both = uint64_t{high} << 32 | low;
  uint32_t bytes = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t which = choice >> 4 * k;
    uint32_t byte = both >> 8 * (which & 7) & 0xff;
    if ((which & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;  // its sign
    bytes |= byte << 8 * k;
  }
  return bytes;
}

template <typename T>
T mask_of(uint32_t first, uint32_t count) {
  constexpr uint32_t kBits = sizeof(T) * 8;
  if (first >= kBits || count == 0) return 0;
  const T all = static_cast<T>(~T{0});
  const T ones = count >= kBits ? all : static_cast<T>(~(all << count));
  return static_cast<T>(ones << first);
}

template <typename T>
After insert(Warp& warp, const Inst& i) {
  const T *bits = warp.row<T>(i.o[1]), *into = warp.row<T>(i.o[2]);
  const uint32_t *first = warp.row<uint32_t>(i.o[3]), *count = warp.row<uint32_t>(i.o[4]);
  write_row<T>(warp, i.o[0], [=](int lane) {
    const uint32_t begin = first[lane] & 0xff;
    const T mask = mask_of<T>(begin, count[lane] & 0xff);
    return static_cast<T>((into[lane] & ~mask) | (mask == 0 ? 0 : (bits[lane] << begin) & mask));
  });
  return After::next;
}

void decode_bfi(Builder& b, Inst& i, Statement& s) {
  b.rows(i, s, 0, 3, width_of(s.type()));
  b.rows(i, s, 3, 5, 4);
  i.run = width_of(s.type()) == 8 ? insert<uint64_t> : insert<uint32_t>;
}

template <typename T>
T reversed(T bits) {
  T out = 0;
  for (size_t k = 0; k < sizeof(T) * 8; ++k) out |= (bits >> k & 1) << (sizeof(T) * 8 - 1 - k);
  return out;
}

template <typename T>
Handler counting(const Statement& s) {
  const std::string& op = s.parts[0];
  if (op == "popc") return unary<[](T a) { return std::popcount(a); }, uint32_t, T>;
  if (op == "clz") return unary<[](T a) { return std::countl_zero(a); }, uint32_t, T>;
  if (op == "brev") return unary<reversed<T>, T, T>;
  if (s.parts[1] == "shiftamt")
    return unary<[](T a) { return a == 0 ? ~0u : uint32_t(std::countl_zero(a)); }, uint32_t, T>;
  return unary<[](T a) { return uint32_t(std::bit_width(a)) - 1; }, uint32_t, T>;
}

void decode_counting(Builder& b, Inst& i, Statement& s) {
  const int width = width_of(s.type());
  if (s.parts[0] == "bfind" && s.type()[0] == 's') return;
  b.row(i, 0, s.operands.at(0), s.parts[0] == "brev" ? width : 4);
  b.row(i, 1, s.operands.at(1), width);
  i.run = width == 8 ? counting<uint64_t>(s) : counting<uint32_t>(s);
}

void decode_of_words(Builder& b, Inst& i, Statement& s) {
  using U = uint32_t;
  b.rows(i, s, 0, s.operands.size(), 4);
  if (s.opcode == "prmt.b32") i.run = ternary<permuted, U, U, U, U>;
  if (s.opcode == "bmsk.clamp.b32") i.run = binary<mask_of<U>, U, U, U>;
}

}  // namespace

Handler copy_of_width(int width) {
  if (width == 8) return unary<[](uint64_t a) { return a; }, uint64_t, uint64_t>;
  return unary<[](uint32_t a) { return a; }, uint32_t, uint32_t>;
}

Handler copy_low_half() {
  return unary<[](uint64_t a) { return uint32_t(a); }, uint32_t, uint64_t>;
}

Decoders bit_decoders() {
  return {{"and", decode_logical},   {"or", decode_logical},    {"xor", decode_logical},
          {"not", decode_logical},   {"shl", decode_shift},     {"shr", decode_shift},
          {"mov", decode_mov},       {"bfi", decode_bfi},       {"shf", decode_funnel_shift},
          {"popc", decode_counting}, {"clz", decode_counting},  {"brev", decode_counting},
          {"prmt", decode_of_words}, {"bmsk", decode_of_words}, {"bfind", decode_counting}};
}

}  // namespace ringside::ptx
