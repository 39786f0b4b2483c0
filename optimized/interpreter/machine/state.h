// What runs: a block of threads, its warps and what is under way in them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "optimized/interpreter/machine/code.h"

namespace ringside::ptx {

struct Launch {
  Function* function;
  std::array<unsigned, 3> grid, block;
  size_t dynamic_shared;
};

// Of bar.sync and the like.
struct ThreadBarrier {
  int arrived = 0, expected = 0;  // threads; 0: all that live
  uint32_t generation = 0;
  uint64_t place = 0;                        // where those wait that have to at one place; or 0
  bool any = false, every = true;            // of the predicates so far
  bool were_any = false, were_every = true;  // of the generation before
};

struct Arrival {
  int thread;
  uint32_t visit;  // of its own
};
struct Arrivals {  // at an mbarrier, in the phase that has not ended
  std::vector<Arrival> all;
  bool is_asked_for = false, before_was_asked_for = true;  // by anybody
  void end() {
    all.clear();
    before_was_asked_for = is_asked_for, is_asked_for = false;
  }
};

struct LateCopy {  // writes shared memory when its time comes
  uint64_t due;
  std::function<void()> land;
};

struct Block {
  const Launch* launch;
  Function* function;
  std::array<unsigned, 3> index;
  std::unique_ptr<std::byte, void (*)(void*)> shared;
  size_t shared_bytes;
  std::array<ThreadBarrier, 16> barriers;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<LateCopy> late;
  uint64_t turn = 0;
  int visits_to_sleep = 0;
  bool is_stuck = false;  // nothing moved when it was visited last
  int living = 0;
  bool moved = false;
  std::map<uint32_t, Arrivals> arrivals = {};  // by the mbarrier's address
};

struct BulkStore {                              // reads shared memory until it is waited for
  std::function<void()> act;                    // empty: done
  std::function<std::function<void()>()> read;  // what is left to do with what is there
  std::function<uint64_t()> digest;             // empty: read
  uint64_t digest_at_issue;
};

struct BulkGroups {  // of a thread
  std::vector<BulkStore> open;
  std::deque<std::vector<BulkStore>> committed;
  uint64_t due = 0;  // the block's turn in which those that are waited for are in memory; or 0
};

struct ProductRead {  // an operand in shared memory of a product that was not waited for
  uint64_t digest, descriptor;
  int first, rows;
  bool transposed;
  uint32_t line;
};

struct Warp {
  Block* block;
  int id;
  uint32_t alive = 0, parked = 0;
  uint64_t awake = 0;  // from this turn of its block on
  uint32_t mask = 0;   // lanes of the instruction at hand
  std::vector<std::byte> storage;
  std::byte* cells = nullptr;
  const std::byte* constants = nullptr;
  std::vector<uint32_t> predicates;
  std::array<uint32_t, 32> pc{};
  std::array<std::vector<uint32_t>, 32> returns;
  std::vector<std::byte> local;
  bool at_barrier = false;
  uint32_t generation = 0;  // of the barrier it came to
  // Of a lane: the last one, and how many it came to from another.
  std::array<uint32_t, 32> mbarrier{}, visit{};
  bool any_group = false;  // that goes on next: its lanes wait for each other
  bool polls = false;
  int in_loop = 0;  // instructions that may be of the loop that polls
  const Inst* now = nullptr;
  std::array<std::vector<std::function<void()>>, 32> copies;
  std::array<std::unique_ptr<BulkGroups>, 32> bulk;
  std::vector<ProductRead> reads;
  std::deque<std::vector<ProductRead>> read_groups;

  template <typename T>
  T* row(int32_t place) const {
    const std::byte* data = place >= 0 ? cells + static_cast<size_t>(place) * 128
                                       : constants + static_cast<size_t>(-1 - place) * 128;
    return reinterpret_cast<T*>(const_cast<std::byte*>(data));
  }
  uint32_t predicate(int32_t code) const {
    const uint32_t lanes = predicates[static_cast<size_t>(code >> 1)];
    return (code & 1) != 0 ? ~lanes : lanes;
  }
  void set_predicate(int32_t code, uint32_t lanes) {
    uint32_t& all = predicates[static_cast<size_t>(code >> 1)];
    all = (all & ~mask) | (lanes & mask);
  }
  const int32_t* list(const Inst& i) const { return block->function->lists.data() + i.list; }
  int first_lane() const { return std::countr_zero(mask); }
};

// f(lane) for each lane of the instruction at hand.
template <typename F>
void each_lane(const Warp& warp, F f) {
  for (uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) f(std::countr_zero(rest));
}

// Where each seed lets other warps go first, and copies land.
std::mt19937_64& random();

[[noreturn]] void fail(const Warp& warp, const Inst& i, const std::string& what);

// Generic addresses are addresses of this process; shared ones begin at 0.
std::byte* generic_at(const Warp& warp, const Inst& i, uint64_t address, size_t bytes);
std::byte* shared_at(const Warp& warp, const Inst& i, uint64_t address, size_t bytes);

constexpr uint64_t kDigestBegin = 1469598103934665603u;
inline uint64_t digest_with(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * 1099511628211u;
  return digest ^ digest >> 32;  // else what is high in a word reaches nothing below
}

// Barriers release who waits; lanes that end leave nothing under way.
void settle(Block& block, ThreadBarrier& barrier);
void finish_copies(Warp& warp, const Inst& i, uint32_t lanes);

}  // namespace ringside::ptx
