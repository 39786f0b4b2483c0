#include "optimized/interpreter/machine/run.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "optimized/interpreter/machine/device_memory.h"
#include "optimized/interpreter/machine/steps.h"

namespace ringside::ptx {
namespace {

constexpr int kPoison = 0xff;
constexpr int kAtOnce = 8;     // blocks, unless all wait for each other
constexpr int kRounds = 300;   // of a block, at most, before another one goes on
constexpr int kStuck = 200;    // rounds in which nothing moved
constexpr int kPatience = 50;  // such visits to all blocks
const Warp* running = nullptr;

std::string place_of(const Warp& warp, const Inst& i) {
  const auto& index = warp.block->index;
  char text[96];
  std::snprintf(text, sizeof text, ", block %u, %u, %u, warp %d, lanes %#x, seed %lld", index[0],
                index[1], index[2], warp.id, warp.mask, static_cast<long long>(setting("SEED", 1)));
  return warp.block->function->where(i.line) + text;
}

void on_bad_address(int signal_number, siginfo_t* info, void*) {
  if (running != nullptr && running->now != nullptr)
    std::fprintf(stderr, "ptx: %p is outside of an allocation\n  at %s\n", info->si_addr,
                 place_of(*running, *running->now).c_str());
  signal(signal_number, SIG_DFL);
}

uint64_t grid_words() {  // where a grid's blocks wait for each other
  static std::byte* const kWords = [] {
    constexpr size_t kBytes = 4096;
    std::byte* words = allocate(kBytes);
    std::memset(words, 0, kBytes);
    return words;
  }();
  return reinterpret_cast<uint64_t>(kWords);
}

uint32_t special_of(const Warp& warp, unsigned lane, Special which) {
  const Launch& launch = *warp.block->launch;
  const unsigned thread = static_cast<unsigned>(warp.id) * 32 + lane;
  const auto number = static_cast<unsigned>(which);
  const auto k = static_cast<size_t>(number % 3);
  switch (which) {
    case Special::tid_x:
      return thread % launch.block[0];
    case Special::tid_y:
      return thread / launch.block[0] % launch.block[1];
    case Special::tid_z:
      return thread / launch.block[0] / launch.block[1];
    case Special::laneid:
      return lane;
    case Special::warpid:
      return static_cast<unsigned>(warp.id);
    case Special::lanemask_lt:
      return (1u << lane) - 1;
    case Special::grid_high:
      return static_cast<uint32_t>(grid_words() >> 32);
    case Special::grid_low:
      return static_cast<uint32_t>(grid_words());
    default:
      break;
  }
  if (which <= Special::ntid_z) return launch.block[k];
  return which <= Special::ctaid_z ? warp.block->index[k] : launch.grid[k];
}

std::unique_ptr<Warp> make_warp(Block& block, int id, unsigned lanes) {
  const Function& f = *block.function;
  auto warp = std::make_unique<Warp>();
  warp->block = &block, warp->id = id;
  warp->alive = warp->mask = lanes >= 32 ? ~0u : (1u << lanes) - 1;
  constexpr size_t kAlign = 64;
  warp->storage.resize(f.rows * 128 + kAlign, static_cast<std::byte>(kPoison));
  const auto address = reinterpret_cast<uint64_t>(warp->storage.data());
  warp->cells = warp->storage.data() + (kAlign - address % kAlign);
  warp->constants = reinterpret_cast<const std::byte*>(f.constants.data());
  warp->predicates.assign(f.predicates, 0);
  warp->predicates[1] = ~0u;
  warp->local.assign(f.local_bytes * 32, static_cast<std::byte>(kPoison));
  for (const auto& [row, which] : f.specials)
    for (unsigned lane = 0; lane < 32; ++lane)
      warp->row<uint32_t>(row)[lane] = special_of(*warp, lane, which);
  return warp;
}

std::unique_ptr<Block> make_block(const Launch& launch, uint64_t number) {
  const auto& [x, y, z] = launch.grid;
  const size_t bytes = launch.function->static_shared + launch.dynamic_shared;
  constexpr size_t kAlign = 1024;
  auto* shared = static_cast<std::byte*>(std::aligned_alloc(kAlign, (bytes / kAlign + 1) * kAlign));
  std::memset(shared, kPoison, bytes);
  auto block = std::unique_ptr<Block>(
      new Block{&launch,
                launch.function,
                {static_cast<unsigned>(number % x), static_cast<unsigned>(number / x % y),
                 static_cast<unsigned>(number / x / y)},
                {shared, std::free},
                bytes,
                {},
                {},
                {}});
  const unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  for (unsigned begin = 0; begin < threads; begin += 32)
    block->warps.push_back(
        make_warp(*block, static_cast<int>(begin / 32), std::min(32u, threads - begin)));
  block->living = static_cast<int>(block->warps.size());
  return block;
}

bool land(Block& block, bool all) {
  bool any = false;
  for (size_t k = 0; k < block.late.size();) {
    if (!all && block.late[k].due > block.turn) {
      ++k;
      continue;
    }
    const auto copy = std::move(block.late[k].land);
    block.late.erase(block.late.begin() + static_cast<std::ptrdiff_t>(k));
    copy();
    any = true;
  }
  return any;
}

// Now and then a warp gets no turn for long, so that others run as far ahead as they may: none from
// when nothing has moved.
bool sleeps(Block& block, Warp& warp, bool has_moved) {
  static const auto one_in = static_cast<unsigned>(setting("SLEEPS", 100));
  constexpr unsigned kLongest = 200;  // turns of the block
  if (has_moved && warp.awake <= block.turn && random()() % one_in == 0)
    warp.awake = block.turn + random()() % kLongest;
  return warp.awake > block.turn;
}

// Each warp's turn, from one that is drawn on; whether anything moved.
bool round_of(Block& block) {
  ++block.turn;
  const bool has_moved = block.moved;
  block.moved = land(block, false);
  const size_t warps = block.warps.size(), first = random()() % warps;
  for (size_t k = 0; k < warps; ++k) {
    Warp& warp = *block.warps[(first + k) % warps];
    if (warp.alive == 0) continue;
    if (sleeps(block, warp, has_moved)) continue;
    running = &warp;
    const auto most = static_cast<unsigned>(random()() % 4 == 0 ? 4000 : 400);
    block.moved |= take_turn(warp, 1 + static_cast<int>(random()() % most));
    if (warp.alive != 0) continue;
    --block.living;
    block.moved = true;
    for (ThreadBarrier& barrier : block.barriers)
      if (barrier.expected == 0) settle(block, barrier);
  }
  return block.moved;
}

// A block's turns; whether it is over.
bool visit(Block& block) {
  const int rounds = 1 + static_cast<int>(random()() % kRounds);
  block.is_stuck = true;
  int still = 0;
  for (int round = 0; round < rounds && still <= kStuck && block.living > 0; ++round) {
    const bool has_moved = round_of(block);
    const auto asleep = [&](const auto& warp) { return warp->awake > block.turn; };
    const bool may_move = !block.late.empty() || std::ranges::any_of(block.warps, asleep);
    still = has_moved || may_move ? 0 : still + 1;
    block.is_stuck = block.is_stuck && still > 0;
  }
  if (block.living > 0) return false;
  land(block, true);
  return true;
}

// Now and then a block gets no turns for long, as if others had begun before it: none that is
// stuck, or nobody would ever see that all are.
bool sleeps(Block& block) {
  constexpr unsigned kOneIn = 30, kLongest = 100;  // visits
  if (block.visits_to_sleep > 0) return --block.visits_to_sleep > 0;
  if (block.is_stuck || random()() % kOneIn != 0) return false;
  block.visits_to_sleep = 1 + static_cast<int>(random()() % kLongest);
  return true;
}

[[noreturn]] void report_stuck(const Launch& launch,
                               const std::vector<std::unique_ptr<Block>>& blocks) {
  std::string text = "nothing moves in " + launch.function->name;
  for (const auto& block : blocks)
    for (const auto& warp : block->warps)
      if (warp->alive != 0 && warp->now != nullptr) text += "\n  " + place_of(*warp, *warp->now);
  fail(text);
}

}  // namespace

std::mt19937_64& random() {
  static std::mt19937_64 generator(static_cast<uint64_t>(setting("SEED", 1)));
  return generator;
}

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv((std::string("RINGSIDE_PTX_") + name).c_str());
  return text == nullptr ? otherwise : std::atoll(text);
}

void fail(const std::string& what) {
  std::fprintf(stderr, "ptx: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

void fail(const Warp& warp, const Inst& i, const std::string& what) {
  fail(what + "\n  at " + place_of(warp, i));
}

std::string Function::where(uint32_t line) const {
  return name + ", line " + std::to_string(line) + " of " + module;
}

void run(const Launch& launch) {
  static const bool kWatched = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bad_address;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSEGV, &action, nullptr) == 0 && sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  static_cast<void>(kWatched);
  const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  const auto few = static_cast<uint64_t>(setting("AT_ONCE", kAtOnce));
  const uint64_t at_once = launch.function->waits_for_grid ? blocks : few;
  const bool from_last = setting("FROM_LAST", 0) != 0;
  std::vector<std::unique_ptr<Block>> resident;
  uint64_t next = 0;
  for (int still = 0; next < blocks || !resident.empty();) {
    for (; resident.size() < at_once && next < blocks; ++next)
      resident.push_back(make_block(launch, from_last ? blocks - 1 - next : next));
    bool moved = false;
    for (auto block = resident.begin(); block != resident.end();) {
      const bool is_over = !sleeps(**block) && visit(**block);
      moved |= is_over || !(*block)->is_stuck;
      block = is_over ? resident.erase(block) : block + 1;
    }
    still = moved ? 0 : still + 1;
    if (still > kPatience) report_stuck(launch, resident);
  }
  running = nullptr;
}

}  // namespace ringside::ptx
