// Barriers of threads, and mbarriers in shared memory.
#include <cstring>

#include "optimized/interpreter/instructions/operations.h"
#include "optimized/interpreter/machine/mbarrier.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

After nothing(Warp&, const Inst&) { return After::next; }
After let_others(Warp&, const Inst&) { return After::others; }
After trap(Warp& warp, const Inst& i) { fail(warp, i, "trap"); }

enum class Role : uint8_t { sync, arrive, any, every };

bool passed(Warp& warp, const Inst& i, const ThreadBarrier& barrier) {
  if (barrier.generation == warp.generation) return false;
  warp.at_barrier = false;
  if (i.slot[0] == Slot::predicate)
    warp.set_predicate(
        i.o[0],
        (static_cast<Role>(i.imm) == Role::any ? barrier.were_any : barrier.were_every) ? ~0u : 0);
  return true;
}

// Of an instruction and of the calls by which a lane came to it.
uint64_t place_of(const Warp& warp, const Inst& i, int lane) {
  uint64_t place =
      digest_with(kDigestBegin, static_cast<uint64_t>(&i - warp.block->function->code.data()));
  for (const uint32_t back : warp.returns[lane]) place = digest_with(place, back);
  return place;
}

// o[1]: which; o[2]: of how many threads, or of all; o[3]: the predicate that is asked about.
After wait_for_threads(Warp& warp, const Inst& i) {
  const int lane = warp.first_lane();
  const uint32_t which = warp.row<uint32_t>(i.o[1])[lane];
  if (which >= warp.block->barriers.size()) fail(warp, i, "barrier " + std::to_string(which));
  ThreadBarrier& barrier = warp.block->barriers[which];
  if (warp.at_barrier) return passed(warp, i, barrier) ? After::next : After::blocked;
  if (i.slot[3] == Slot::predicate) {
    const uint32_t lanes = warp.predicate(i.o[3]) & warp.mask;
    barrier.any |= lanes != 0;
    barrier.every &= lanes == warp.mask;
  }
  const bool counted = i.slot[2] == Slot::row;
  barrier.expected = counted ? static_cast<int>(warp.row<uint32_t>(i.o[2])[lane]) : 0;
  if (barrier.expected % 32 != 0) fail(warp, i, "a barrier of part of a warp");
  const bool waits = static_cast<Role>(i.imm) != Role::arrive, is_aligned = i.imm2 != 0;
  if (waits && is_aligned) {
    const uint64_t place = place_of(warp, i, lane);
    if (barrier.place != 0 && barrier.place != place)
      fail(warp, i, "an aligned barrier, at which others wait elsewhere");
    barrier.place = place;
  }
  barrier.arrived += 32;
  warp.generation = barrier.generation;
  settle(*warp.block, barrier);
  if (!waits) return After::next;
  warp.at_barrier = true;
  return passed(warp, i, barrier) ? After::next : After::blocked;
}

void decode_bar(Builder& b, Inst& i, Statement& s) {
  i.writes = 0;
  if (s.opcode == "bar.warp.sync") {
    i.together = Together::members;
    b.row(i, 5, s.operands.at(0), 4);
    i.run = nothing;
    return;
  }
  i.together = Together::all;
  const bool asks = s.parts.at(1) == "red";
  const size_t which = asks ? 1 : 0, count = s.operands.size() - (asks ? 1 : 0);
  if (asks) {
    b.predicate(i, 0, s.operands.at(0));
    b.predicate(i, 3, s.operands.back());
  }
  b.row(i, 1, s.operands.at(which), 4);
  if (count > which + 1) b.row(i, 2, s.operands.at(which + 1), 4);
  i.imm = static_cast<int64_t>(!asks ? (s.parts[1] == "arrive" ? Role::arrive : Role::sync)
                               : s.parts.at(2) == "or" ? Role::any
                                                       : Role::every);
  i.imm2 = s.parts[0] == "bar" || s.has("aligned");
  i.run = wait_for_threads;
}

uint32_t address_of_mbarrier(const Warp& warp, const Inst& i, int lane) {
  return warp.row<uint32_t>(i.o[1])[lane] + static_cast<uint32_t>(i.imm);
}
std::byte* mbarrier_at(const Warp& warp, const Inst& i, int lane) {
  return shared_at(warp, i, address_of_mbarrier(warp, i, lane), 8);
}
void come_to_mbarrier(Warp& warp, const Inst& i, int lane) {
  const uint32_t address = address_of_mbarrier(warp, i, lane);
  if (address != warp.mbarrier[lane]) ++warp.visit[lane];
  warp.mbarrier[lane] = address;
}

Arrivals& arrivals_at(const Warp& warp, const Inst& i, int lane) {
  return warp.block->arrivals[address_of_mbarrier(warp, i, lane)];
}

// A thread may arrive for others, too. But who has been at other mbarriers meanwhile is ahead of
// somebody who has yet to come, in whose place it would count. And nobody may count for the next
// phase before somebody has asked for this one, be it too early: that it has ended would be known
// by other ways only.
void note_arrival(Warp& warp, const Inst& i, int lane) {
  Arrivals& arrivals = arrivals_at(warp, i, lane);
  if (!arrivals.before_was_asked_for)
    fail(warp, i, "an arrival at an mbarrier of which nobody has asked for the phase before");
  const int thread = warp.id * 32 + lane;
  for (const Arrival& before : arrivals.all)
    if (before.thread == thread && before.visit != warp.visit[lane])
      fail(warp, i, "a thread that comes to an mbarrier again before the phase has ended");
  arrivals.all.push_back({thread, warp.visit[lane]});
}

After init(Warp& warp, const Inst& i) {
  each_lane(warp, [&](int lane) {
    Mbarrier(static_cast<int>(warp.row<uint32_t>(i.o[2])[lane])).store(mbarrier_at(warp, i, lane));
    arrivals_at(warp, i, lane) = {};
  });
  return After::next;
}

template <bool ExpectsBytes>
After arrive(Warp& warp, const Inst& i) {
  each_lane(warp, [&](int lane) {
    come_to_mbarrier(warp, i, lane);
    std::byte* at = mbarrier_at(warp, i, lane);
    Mbarrier barrier = Mbarrier::load(at);
    const int number =
        i.slot[2] == Slot::row ? static_cast<int>(warp.row<uint32_t>(i.o[2])[lane]) : 1;
    const int threads = ExpectsBytes ? 1 : number;
    if (barrier.pending < threads)
      fail(warp, i, "more arrivals than the " + std::to_string(barrier.expected) + " expected");
    note_arrival(warp, i, lane);
    barrier.pending -= threads;
    if (ExpectsBytes) barrier.bytes += number;
    if (barrier.settle()) arrivals_at(warp, i, lane).end();
    barrier.store(at);
  });
  warp.block->moved = true;
  return After::next;
}

After test(Warp& warp, const Inst& i) {
  uint32_t lanes = 0;
  each_lane(warp, [&](int lane) {
    come_to_mbarrier(warp, i, lane);
    const int parity = warp.row<uint32_t>(i.o[2])[lane] & 1;
    const bool has_ended = Mbarrier::load(mbarrier_at(warp, i, lane)).phase != parity;
    Arrivals& arrivals = arrivals_at(warp, i, lane);
    (has_ended ? arrivals.before_was_asked_for : arrivals.is_asked_for) = true;
    lanes |= uint32_t{has_ended} << lane;
  });
  warp.set_predicate(i.o[0], lanes);
  if (lanes == warp.mask) return After::next;
  warp.any_group = warp.polls = true;
  return After::others;
}

void decode_mbarrier(Builder& b, Inst& i, Statement& s) {
  i.writes = 0;
  const std::string& what = s.parts.at(1);
  if (what == "init") {
    b.address(i, 1, s.operands.at(0), 4);
    b.row(i, 2, s.operands.at(1), 4);
    i.run = init;
  } else if (what == "arrive") {
    if (s.operands.at(0).kind != Operand::Kind::address) s.operands.erase(s.operands.begin());
    b.address(i, 1, s.operands.at(0), 4);
    if (s.operands.size() > 1) b.row(i, 2, s.operands[1], 4);
    i.run = s.has("expect_tx") ? arrive<true> : arrive<false>;
  } else if ((what == "try_wait" || what == "test_wait") && s.parts.at(2) == "parity") {
    b.predicate(i, 0, s.operands.at(0));
    b.address(i, 1, s.operands.at(1), 4);
    b.row(i, 2, s.operands.at(2), 4);
    i.run = test;
  }
}

void decode_nothing(Builder&, Inst& i, Statement& s) {
  i.writes = 0;
  if (s.parts[0] == "setmaxnreg") i.together = Together::all;
  i.run = s.parts[0] == "trap" ? trap : s.parts[0] == "nanosleep" ? let_others : nothing;
}

}  // namespace

void settle(Block& block, ThreadBarrier& barrier) {
  const int expected = barrier.expected == 0 ? block.living * 32 : barrier.expected;
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  barrier.arrived = 0, barrier.place = 0;
  barrier.were_any = barrier.any, barrier.were_every = barrier.every;
  barrier.any = false, barrier.every = true;
  ++barrier.generation;
  block.moved = true;
}

Decoders barrier_decoders() {
  Decoders all = {{"bar", decode_bar}, {"barrier", decode_bar}, {"mbarrier", decode_mbarrier}};
  for (const char* op : {"fence", "membar", "setmaxnreg", "griddepcontrol", "nanosleep", "trap"})
    all[op] = decode_nothing;
  return all;
}

}  // namespace ringside::ptx
