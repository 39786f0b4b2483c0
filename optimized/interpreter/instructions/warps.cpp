// What lanes of a warp tell each other.
#include <algorithm>
#include <cstring>

#include "optimized/interpreter/instructions/atomics.h"
#include "optimized/interpreter/instructions/operations.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

using Row = std::array<uint32_t, 32>;
Row copied(const Warp& warp, int32_t row) {
  Row out;
  std::memcpy(out.data(), warp.row<uint32_t>(row), sizeof out);
  return out;
}

enum class Shuffle : uint8_t { up, down, bfly, idx };

struct Source {
  int lane;
  bool in_segment;
};
Source source_of(Shuffle how, int lane, uint32_t by, uint32_t bounds) {
  const int segment = bounds >> 8 & 31, clamp = bounds & 31, step = by & 31;
  const int first = lane & segment, last = first | (clamp & ~segment);
  switch (how) {
    case Shuffle::up:
      return {lane - step, lane - step >= last};
    case Shuffle::down:
      return {lane + step, lane + step <= last};
    case Shuffle::bfly:
      return {lane ^ step, (lane ^ step) <= last};
    case Shuffle::idx:
      break;
  }
  const int lane_of = first | (step & ~segment);
  return {lane_of, lane_of <= last};
}

After shuffle(Warp& warp, const Inst& i) {
  const Row values = copied(warp, i.o[1]), by = copied(warp, i.o[2]), bounds = copied(warp, i.o[3]);
  auto* to = warp.row<uint32_t>(i.o[0]);
  uint32_t in_segment = 0;
  each_lane(warp, [&](int lane) {
    Source from = source_of(static_cast<Shuffle>(i.imm), lane, by[lane], bounds[lane]);
    in_segment |= uint32_t{from.in_segment} << lane;
    if (!from.in_segment) from.lane = lane;
    if ((warp.mask >> from.lane & 1) == 0)
      fail(warp, i, "shfl of lane " + std::to_string(from.lane) + ", which takes no part");
    to[lane] = values[from.lane];
  });
  if (i.slot[4] == Slot::predicate) warp.set_predicate(i.o[4], in_segment);
  return After::next;
}

void decode_shfl(Builder& b, Inst& i, Statement& s) {
  i.together = Together::members;
  if (s.operands.size() == 6) {
    b.predicate(i, 4, s.operands[1]);
    s.operands.erase(s.operands.begin() + 1);
  }
  b.rows(i, s, 0, 4, 4);
  b.row(i, 5, s.operands.at(4), 4);
  const std::string& how = s.parts.at(2);
  i.imm = static_cast<int64_t>(how == "up"     ? Shuffle::up
                               : how == "down" ? Shuffle::down
                               : how == "bfly" ? Shuffle::bfly
                                               : Shuffle::idx);
  i.run = shuffle;
}

// Lanes of one instruction may name several masks: F runs for each of these apart.
template <Handler F>
After by_members(Warp& warp, const Inst& i) {
  const Row members = copied(warp, i.o[5]);
  for (uint32_t rest = warp.mask; rest != 0; rest &= ~warp.mask) {
    const uint32_t of_first = members[static_cast<size_t>(std::countr_zero(rest))];
    warp.mask = 0;
    for (size_t lane = 0; lane < members.size(); ++lane)
      if ((rest >> lane & 1) != 0 && members[lane] == of_first) warp.mask |= 1u << lane;
    F(warp, i);
  }
  return After::next;
}

After ballot(Warp& warp, const Inst& i) {
  const uint32_t lanes = warp.predicate(i.o[1]) & warp.mask;
  write_row<uint32_t>(warp, i.o[0], [=](int) { return lanes; });
  return After::next;
}

template <bool Every>
After vote(Warp& warp, const Inst& i) {
  const uint32_t lanes = warp.predicate(i.o[1]) & warp.mask;
  warp.set_predicate(i.o[0], (Every ? lanes == warp.mask : lanes != 0) ? ~0u : 0);
  return After::next;
}

void decode_vote(Builder& b, Inst& i, Statement& s) {
  i.together = Together::members;
  const bool is_ballot = s.parts.at(2) == "ballot";
  is_ballot ? b.row(i, 0, s.operands.at(0), 4) : b.predicate(i, 0, s.operands.at(0));
  b.predicate(i, 1, s.operands.at(1));
  b.row(i, 5, s.operands.at(2), 4);
  if (is_ballot) i.run = by_members<ballot>;
  if (s.parts[2] == "any") i.run = by_members<vote<false>>;
  if (s.parts[2] == "all") i.run = by_members<vote<true>>;
}

After match(Warp& warp, const Inst& i) {
  const Row values = copied(warp, i.o[1]);
  write_row<uint32_t>(warp, i.o[0], [&](int lane) {
    uint32_t same = 0;
    each_lane(warp, [&](int other) { same |= uint32_t{values[other] == values[lane]} << other; });
    return same;
  });
  return After::next;
}

template <typename T>
After reduce(Warp& warp, const Inst& i) {
  const auto* values = warp.row<uint32_t>(i.o[1]);
  const auto op = static_cast<AtomicOp>(i.imm);
  auto all = static_cast<T>(values[warp.first_lane()]);
  each_lane(warp, [&](int lane) {
    if (lane != warp.first_lane()) all = updated(op, all, static_cast<T>(values[lane]));
  });
  write_row<uint32_t>(warp, i.o[0], [=](int) { return static_cast<uint32_t>(all); });
  return After::next;
}

void decode_of_members(Builder& b, Inst& i, Statement& s) {
  i.together = Together::members;
  b.rows(i, s, 0, 2, 4);
  b.row(i, 5, s.operands.at(2), 4);
  if (s.opcode == "match.any.sync.b32") i.run = by_members<match>;
  const auto op = atomic_op(s.parts);
  if (s.parts[0] != "redux" || !op) return;
  i.imm = static_cast<int64_t>(*op);
  i.run = s.type() == "s32" ? by_members<reduce<int32_t>> : by_members<reduce<uint32_t>>;
}

After active(Warp& warp, const Inst& i) {
  write_row<uint32_t>(warp, i.o[0], [lanes = warp.mask](int) { return lanes; });
  return After::next;
}

void decode_activemask(Builder& b, Inst& i, Statement& s) {
  b.rows(i, s, 0, 1, 4);
  i.run = active;
}

}  // namespace

Decoders warp_decoders() {
  return {{"shfl", decode_shfl},
          {"vote", decode_vote},
          {"match", decode_of_members},
          {"redux", decode_of_members},
          {"activemask", decode_activemask}};
}

}  // namespace ringside::ptx
