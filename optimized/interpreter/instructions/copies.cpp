// Copies that go on beside the threads: boxes of tensor maps, and cp.async.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "optimized/interpreter/instructions/atomics.h"
#include "optimized/interpreter/instructions/operations.h"
#include "optimized/interpreter/machine/device_memory.h"
#include "optimized/interpreter/machine/mbarrier.h"
#include "optimized/interpreter/machine/tensor_map.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

struct Box {
  TensorMap map;
  std::array<int32_t, 5> at{};
  uint32_t shared = 0;
};

// What lies together in a box and in shared memory: at most the 16 bytes that a swizzle moves as
// one.
constexpr uint32_t kPieceBytes = 16;
struct Piece {
  std::byte* of_tensor;  // null outside of it
  std::byte* of_shared;
  uint32_t bytes;
};

// f(piece) for all of a box, in its order.
template <typename F>
void each_piece(const Warp& warp, const Inst& i, const Box& box, F f) {
  const TensorMap& map = box.map;
  if (box.shared % 128 != 0) fail(warp, i, "a box at shared address " + std::to_string(box.shared));
  const uint32_t bytes = map.element_bytes;
  const auto size = static_cast<int64_t>(map.size[0]);
  uint32_t place = box.shared;
  const auto along_row = [&](std::byte* row) {  // null where all of it lies outside
    for (int64_t at = box.at[0], end = at + map.box[0]; at < end;) {
      const bool inside = row != nullptr && at >= 0 && at < size;
      int64_t count = std::min<int64_t>(end - at, (kPieceBytes - place % kPieceBytes) / bytes);
      if (row != nullptr && at < size) count = std::min(count, at < 0 ? -at : size - at);
      const auto piece = static_cast<uint32_t>(count) * bytes;
      std::byte* element = inside ? row + at * bytes : nullptr;
      if (inside && !in_device_memory(reinterpret_cast<uint64_t>(element), piece))
        fail(warp, i, "a box outside of device memory");
      const uint32_t swizzled = place ^ (place >> 7 & map.swizzle_bits) << 4;
      f(Piece{element, shared_at(warp, i, swizzled, piece), piece});
      place += piece, at += count;
    }
  };
  const auto along = [&](const auto& self, size_t dim, std::byte* begin) -> void {
    if (dim == 0) return along_row(begin);
    for (int64_t at = box.at[dim], end = at + map.box[dim]; at < end; ++at) {
      const bool inside = begin != nullptr && at >= 0 && static_cast<uint64_t>(at) < map.size[dim];
      self(self, dim - 1, inside ? begin + static_cast<uint64_t>(at) * map.stride[dim] : nullptr);
    }
  };
  along(along, map.rank - 1u, map.data);
}

// Where something of a box is out of bounds an H200 may look up where the map begins.
void require_beginning(const Warp& warp, const Inst& i, const TensorMap& map) {
  if (!is_allocated(map.data, map.element_bytes))
    fail(warp, i, "a map that begins outside of device memory");
}

Box box_of(const Warp& warp, const Inst& i, int lane) {  // o[0]: shared address, o[1]: map
  Box box;
  std::memcpy(&box.map, generic_at(warp, i, warp.row<uint64_t>(i.o[1])[lane], 64), sizeof box.map);
  if (box.map.mark != kMapMark || box.map.rank != i.list_size)
    fail(warp, i, "no tensor map of this rank");
  require_beginning(warp, i, box.map);
  for (size_t k = 0; k < i.list_size; ++k)
    box.at[k] = static_cast<int32_t>(warp.row<uint32_t>(warp.list(i)[k])[lane]);
  box.shared = warp.row<uint32_t>(i.o[0])[lane];
  return box;
}

// At once, or some turns later: a GPU promises neither.
After load_box(Warp& warp, const Inst& i) {
  each_lane(warp, [&](int lane) {
    const auto land = [&warp, &i, box = box_of(warp, i, lane),
                       barrier_at = warp.row<uint32_t>(i.o[2])[lane]] {
      int bytes = 0;
      each_piece(warp, i, box, [&](const Piece& piece) {
        if (piece.of_tensor == nullptr)
          std::memset(piece.of_shared, 0, piece.bytes);
        else
          std::memcpy(piece.of_shared, piece.of_tensor, piece.bytes);
        bytes += static_cast<int>(piece.bytes);
      });
      std::byte* at = shared_at(warp, i, barrier_at, 8);
      Mbarrier barrier = Mbarrier::load(at);
      barrier.bytes -= bytes;
      if (barrier.settle()) warp.block->arrivals[barrier_at].end();
      barrier.store(at);
      warp.block->moved = true;
    };
    constexpr int kMostTurns = 40;
    if (random()() % 3 == 0)
      land();
    else
      warp.block->late.push_back({warp.block->turn + random()() % kMostTurns, land});
  });
  warp.block->moved = true;
  return After::next;
}

template <bool Adds>
void store_piece(const Piece& piece) {
  if (piece.of_tensor == nullptr) return;
  if (!Adds) {
    std::memcpy(piece.of_tensor, piece.of_shared, piece.bytes);
    return;
  }
  for (uint32_t at = 0; at < piece.bytes; at += sizeof(float)) {
    float value;
    std::memcpy(&value, piece.of_shared + at, sizeof value);
    update(AtomicOp::add, reinterpret_cast<float*>(piece.of_tensor + at), value);
  }
}

template <bool Adds>
After store_box(Warp& warp, const Inst& i) {
  each_lane(warp, [&](int lane) {
    const Box box = box_of(warp, i, lane);
    if (Adds && box.map.element_bytes != sizeof(float))
      fail(warp, i, "a sum of something else than float32");
    const auto act = [&warp, &i, box] { each_piece(warp, i, box, store_piece<Adds>); };
    const auto digest = [&warp, &i, box] {
      uint64_t all = kDigestBegin;
      each_piece(warp, i, box, [&](const Piece& piece) {
        std::array<uint64_t, kPieceBytes / sizeof(uint64_t)> words{};
        std::memcpy(words.data(), piece.of_shared, piece.bytes);
        for (const uint64_t word : words) all = digest_with(all, word);
      });
      return all;
    };
    std::unique_ptr<BulkGroups>& groups = warp.bulk[static_cast<size_t>(lane)];
    if (!groups) groups = std::make_unique<BulkGroups>();
    // What is written later, of what was read.
    const auto read = [&warp, &i, box]() -> std::function<void()> {
      struct Read {
        Piece piece;
        std::array<std::byte, kPieceBytes> bytes;
      };
      std::vector<Read> all;
      each_piece(warp, i, box, [&](const Piece& piece) {
        std::memcpy(all.emplace_back(Read{piece, {}}).bytes.data(), piece.of_shared, piece.bytes);
      });
      return [all = std::move(all)]() mutable {
        for (Read& one : all)
          store_piece<Adds>({one.piece.of_tensor, one.bytes.data(), one.piece.bytes});
      };
    };
    groups->open.push_back({{}, read, digest, digest()});
    if (random()() % 2 == 0)
      act();
    else
      groups->open.back().act = act;
  });
  return After::next;
}

After commit_stores(Warp& warp, const Inst&) {
  each_lane(warp, [&](int lane) {
    std::unique_ptr<BulkGroups>& groups = warp.bulk[static_cast<size_t>(lane)];
    if (!groups) groups = std::make_unique<BulkGroups>();
    groups->committed.push_back(std::move(groups->open));
    groups->open.clear();
  });
  return After::next;
}

void require_unchanged(const Warp& warp, const Inst& i, const BulkStore& store) {
  if (store.digest && store.digest() != store.digest_at_issue)
    fail(warp, i, "shared memory changed under a store of a box not waited for");
}

void finish(const Warp& warp, const Inst& i, const std::vector<BulkStore>& stores) {
  for (const BulkStore& store : stores) {
    require_unchanged(warp, i, store);
    if (store.act) store.act();
  }
}

// Shared memory is free; some of what was there is written later.
After wait_for_reads(Warp& warp, const Inst& i) {
  constexpr std::ptrdiff_t kMostOnTheirWay = 4;
  each_lane(warp, [&](int lane) {
    const std::unique_ptr<BulkGroups>& groups = warp.bulk[static_cast<size_t>(lane)];
    if (!groups) return;
    auto waited_for = std::ssize(groups->committed) - i.imm;
    for (std::ptrdiff_t group = 0; group < waited_for; ++group)
      for (BulkStore& store : groups->committed[static_cast<size_t>(group)]) {
        require_unchanged(warp, i, store);
        if (store.digest && store.act) store.act = store.read();
        store.digest = {};
      }
    for (; waited_for > 0 && (waited_for > kMostOnTheirWay || random()() % 2 == 0); --waited_for) {
      finish(warp, i, groups->committed.front());
      groups->committed.pop_front();
    }
  });
  return After::next;
}

bool on_their_way(const BulkGroups& groups, int64_t left) {
  const auto waited_for = std::ssize(groups.committed) - left;
  return waited_for > 0 &&
         std::any_of(groups.committed.begin(), groups.committed.begin() + waited_for,
                     [](const auto& group) {
                       return std::ranges::any_of(group, [](const BulkStore& store) {
                         return static_cast<bool>(store.act);
                       });
                     });
}

// Whether they are in memory; now and then that takes so long that other blocks go on before.
bool arrived(const Warp& warp, BulkGroups& groups, int64_t left) {
  constexpr unsigned kLong = 500;  // turns
  if (!on_their_way(groups, left)) return true;
  const uint64_t turn = warp.block->turn;
  if (groups.due == 0) groups.due = turn + (random()() % 8 == 0 ? random()() % kLong : 0);
  return turn >= groups.due;
}

After wait_for_stores(Warp& warp, const Inst& i) {
  bool all_arrived = true;
  each_lane(warp, [&](int lane) {
    const std::unique_ptr<BulkGroups>& groups = warp.bulk[static_cast<size_t>(lane)];
    all_arrived &= !groups || arrived(warp, *groups, i.imm);
  });
  if (!all_arrived) return After::blocked;
  each_lane(warp, [&](int lane) {
    const std::unique_ptr<BulkGroups>& groups = warp.bulk[static_cast<size_t>(lane)];
    while (groups && std::ssize(groups->committed) > i.imm) {
      finish(warp, i, groups->committed.front());
      groups->committed.pop_front();
    }
    if (groups) groups->due = 0;
  });
  return After::next;
}

// o[0]: shared address, o[1]: global, imm: bytes, o[2]: of these, from memory; imm2: both offsets.
After copy(Warp& warp, const Inst& i) {
  const auto bytes = static_cast<size_t>(i.imm);
  each_lane(warp, [&](int lane) {
    const uint32_t place = warp.row<uint32_t>(i.o[0])[lane] + static_cast<uint32_t>(i.imm2 >> 32);
    const uint64_t address = warp.row<uint64_t>(i.o[1])[lane] +
                             static_cast<uint64_t>(int64_t{static_cast<int32_t>(i.imm2)});
    const size_t some = i.slot[2] == Slot::row ? warp.row<uint32_t>(i.o[2])[lane] : bytes;
    const size_t present = std::min(bytes, some);
    const std::byte* from = present > 0 ? generic_at(warp, i, address, bytes) : nullptr;
    const auto act = [=, to = shared_at(warp, i, place, bytes)] {
      std::memset(to, 0, bytes);
      if (present > 0) std::memcpy(to, from, present);
    };
    if (random()() % 2 == 0)
      act();
    else
      warp.copies[static_cast<size_t>(lane)].push_back(act);
  });
  return After::next;
}

void land_copies(Warp& warp, int lane) {
  auto& copies = warp.copies[static_cast<size_t>(lane)];
  for (const auto& act : copies) act();
  copies.clear();
}

After wait_for_copies(Warp& warp, const Inst&) {
  each_lane(warp, [&](int lane) { land_copies(warp, lane); });
  return After::next;
}

void decode_box(Builder& b, Inst& i, Statement& s) {
  const auto& o = s.operands;
  const bool loads = o.at(0).list.size() == 1;  // [shared], [map, {coordinates}], [mbarrier]
  const Operand &memory = o.at(loads ? 1 : 0), &shared = o.at(loads ? 0 : 1);
  i.writes = kReadsList;
  b.row(i, 0, shared.list.at(0), 4);
  b.row(i, 1, memory.list.at(0), 8);
  if (loads) b.row(i, 2, o.at(2).list.at(0), 4);
  b.list(i, memory.list.at(1), 4);
  if (shared.number != 0 || memory.number != 0 || (loads && o[2].number != 0)) return;
  const bool adds = s.parts.at(1) == "reduce" && s.has("add");
  if (loads)
    i.run = load_box;
  else if (adds || s.parts[1] != "reduce")
    i.run = adds ? store_box<true> : store_box<false>;
}

void decode_cp(Builder& b, Inst& i, Statement& s) {
  i.writes = 0;
  if (s.has("tensor")) return decode_box(b, i, s);
  if (s.has("wait_group") && s.has("bulk")) {
    i.imm = static_cast<int64_t>(s.operands.at(0).number);
    i.run = s.has("read") ? wait_for_reads : wait_for_stores;
  } else if (s.opcode == "cp.async.bulk.commit_group") {
    i.run = commit_stores;
  } else if (s.opcode == "cp.async.wait_all") {
    i.run = wait_for_copies;
  } else if (s.parts.at(2) == "ca" || s.parts[2] == "cg") {
    const Operand &to = s.operands.at(0), &from = s.operands.at(1);
    b.row(i, 0, to.list.at(0), 4);
    b.row(i, 1, from.list.at(0), 8);
    if (s.operands.size() > 3) b.row(i, 2, s.operands[3], 4);
    i.imm = static_cast<int64_t>(s.operands.at(2).number);
    i.imm2 = static_cast<int64_t>(to.number << 32 | (from.number & 0xffffffffu));
    i.run = copy;
  }
}

}  // namespace

void finish_copies(Warp& warp, const Inst& i, uint32_t lanes) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    land_copies(warp, lane);
    std::unique_ptr<BulkGroups>& groups = warp.bulk[static_cast<size_t>(lane)];
    if (!groups) continue;
    for (const auto& stores : groups->committed) finish(warp, i, stores);
    finish(warp, i, groups->open);
    groups.reset();
  }
}

Decoders copy_decoders() { return {{"cp", decode_cp}}; }

}  // namespace ringside::ptx
