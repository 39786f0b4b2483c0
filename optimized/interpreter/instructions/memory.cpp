// Loads, stores and atomics.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "optimized/interpreter/instructions/atomics.h"
#include "optimized/interpreter/instructions/operations.h"
#include "optimized/interpreter/machine/device_memory.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

enum class Space : uint8_t { generic, shared, local };

[[gnu::noinline, gnu::cold, noreturn]] void no_address(const Warp& warp, const Inst& i,
                                                       uint64_t address, const char* what) {
  char text[80];
  std::snprintf(text, sizeof text, "%s %#llx", what, static_cast<unsigned long long>(address));
  fail(warp, i, text);
}

bool within(uint64_t address, size_t bytes, const void* begin, size_t size) {
  const uint64_t offset = address - reinterpret_cast<uint64_t>(begin);
  return offset < size && bytes <= size - offset;
}

// Of an instruction that nothing but its lanes' addresses tells apart; its bytes are a power of 2.
template <Space S>
[[gnu::always_inline]] inline std::byte* place(const Warp& warp, const Inst& i, int lane,
                                               size_t bytes) {
  const auto offset = static_cast<uint64_t>(i.imm);
  if constexpr (S == Space::shared) {
    const bool wide = i.o[5] != 0;  // of the register
    const uint64_t base =
        wide ? warp.row<uint64_t>(i.o[1])[lane] : warp.row<uint32_t>(i.o[1])[lane];
    return shared_at(warp, i, static_cast<uint32_t>(base + offset), bytes);
  }
  const uint64_t address = warp.row<uint64_t>(i.o[1])[lane] + offset;
  if constexpr (S == Space::generic) return generic_at(warp, i, address, bytes);
  const size_t each = warp.block->function->local_bytes;
  if (address + bytes > each) no_address(warp, i, address, "beyond local memory:");
  return const_cast<std::byte*>(warp.local.data()) + static_cast<size_t>(lane) * each + address;
}

// imm2: bytes of the registers, into which an integer is extended.
template <typename T>
void put(const Warp& warp, const Inst& i, int32_t row, int lane, T value) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    const auto extended = static_cast<uint64_t>(Wide{value});
    if (i.imm2 == 8)
      warp.row<uint64_t>(row)[lane] = extended;
    else
      warp.row<uint32_t>(row)[lane] =
          i.imm2 == 2 ? static_cast<uint16_t>(extended) : static_cast<uint32_t>(extended);
  } else {  // its bits, whatever NaN they are
    Cell<T> cell = 0;
    std::memcpy(&cell, &value, sizeof value);
    warp.row<Cell<T>>(row)[lane] = cell;
  }
}

template <typename T, Space S, bool Polls>
After load(Warp& warp, const Inst& i) {
  const int32_t* rows = warp.list(i);
  if (Polls) std::atomic_thread_fence(std::memory_order_acquire);
  each_lane(warp, [&](int lane) {
    const std::byte* from = place<S>(warp, i, lane, sizeof(T) * i.list_size);
    for (int k = 0; k < i.list_size; ++k) {
      T value;
      std::memcpy(&value, from + static_cast<size_t>(k) * sizeof(T), sizeof(T));
      put(warp, i, rows[k], lane, value);
    }
  });
  warp.polls |= Polls;
  return Polls ? After::others : After::next;
}

template <typename T, Space S>
After store(Warp& warp, const Inst& i) {
  const int32_t* rows = warp.list(i);
  each_lane(warp, [&](int lane) {
    std::byte* to = place<S>(warp, i, lane, sizeof(T) * i.list_size);
    for (int k = 0; k < i.list_size; ++k)
      std::memcpy(to + static_cast<size_t>(k) * sizeof(T), &warp.row<Cell<T>>(rows[k])[lane],
                  sizeof(T));
  });
  return After::next;
}

template <Space S>
Handler access(const Statement& s, bool loads) {
  const bool polls = s.has("acquire") || s.has("volatile");
  Handler found = nullptr;
  with_type(s.type(), [&]<typename T>() {
    found = !loads ? store<T, S> : polls ? load<T, S, true> : load<T, S, false>;
  });
  return found;
}

bool is_register(const Operand& o) { return o.kind != Operand::Kind::variable || o.name[0] == '%'; }

void decode_access(Builder& b, Inst& i, Statement& s) {
  const bool loads = s.parts[0] == "ld";
  Operand &memory = s.operands.at(loads ? 1 : 0), &registers = s.operands.at(loads ? 0 : 1);
  const Operand base = memory.list.at(0);
  if (!is_register(base)) {  // a parameter of a call: a variable
    if (memory.number != 0) b.refuse(i, "a part of a parameter");
    const int width = width_of(s.type()) == 8 ? 8 : 4;
    b.row(i, 0, loads ? registers : base, width);
    b.row(i, 1, loads ? base : registers, width);
    i.run = copy_of_width(width);
    return;
  }
  i.writes = loads ? kWritesList : kReadsList;
  const bool shared = s.parts[1].starts_with("shared");
  const bool wide = !shared || (base.kind == Operand::Kind::variable && base.width == 8);
  b.address(i, 1, memory, wide ? 8 : 4);
  i.o[5] = wide ? 1 : 0;
  const Operand& first = registers.kind == Operand::Kind::list ? registers.list[0] : registers;
  i.imm2 = first.kind == Operand::Kind::variable ? first.width : 4;
  b.list(i, registers, width_of(s.type()) == 8 ? 8 : 4);
  i.run = shared                  ? access<Space::shared>(s, loads)
          : s.parts[1] == "local" ? access<Space::local>(s, loads)
                                  : access<Space::generic>(s, loads);
}

// o[0] = what was there; imm2: the operation; a list: neighbours, of a reduction.
template <typename T, Space S>
After atomic(Warp& warp, const Inst& i) {
  const auto op = static_cast<AtomicOp>(i.imm2);
  each_lane(warp, [&](int lane) {
    auto* at =
        reinterpret_cast<T*>(place<S>(warp, i, lane, sizeof(T) * static_cast<size_t>(i.list_size)));
    for (int k = 0; k < i.list_size; ++k) {
      const T value = std::bit_cast<T>(warp.row<Cell<T>>(warp.list(i)[k])[lane]);
      const T before = update(op, at + k, value);
      if (i.slot[0] == Slot::row) warp.row<Cell<T>>(i.o[0])[lane] = std::bit_cast<Cell<T>>(before);
    }
  });
  return After::next;
}

// o[0] = what was there; a list: what must be there to be replaced, and by what.
template <typename T, Space S>
After compare_and_swap(Warp& warp, const Inst& i) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, Cell<T>>;
  each_lane(warp, [&](int lane) {
    auto* at = reinterpret_cast<Bits*>(place<S>(warp, i, lane, sizeof(T)));
    auto seen = static_cast<Bits>(warp.row<Cell<T>>(warp.list(i)[0])[lane]);
    const auto value = static_cast<Bits>(warp.row<Cell<T>>(warp.list(i)[1])[lane]);
    __atomic_compare_exchange_n(at, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    warp.row<Cell<T>>(i.o[0])[lane] = seen;
  });
  return After::next;
}

void decode_compare_and_swap(Builder& b, Inst& i, Statement& s) {
  const bool shared = s.parts[1].starts_with("shared");
  const int width = width_of(s.type());
  i.writes = static_cast<uint8_t>(1 | kReadsList);
  b.row(i, 0, s.operands.at(0), width);
  b.address(i, 1, s.operands.at(1), shared ? 4 : 8);
  Operand both;
  both.kind = Operand::Kind::list;
  both.list = {s.operands.at(2), s.operands.at(3)};
  b.list(i, both, width);
  with_type(s.type(), [&]<typename T>() {
    if constexpr (sizeof(T) >= 2)
      i.run = shared ? compare_and_swap<T, Space::shared> : compare_and_swap<T, Space::generic>;
  });
}

void decode_atomic(Builder& b, Inst& i, Statement& s) {
  if (s.has("cas")) return decode_compare_and_swap(b, i, s);
  const bool returns = s.parts[0] == "atom", shared = s.parts[1].starts_with("shared");
  const int width = width_of(s.type());
  i.writes = static_cast<uint8_t>((returns ? 1 : 0) | kReadsList);
  if (returns) b.row(i, 0, s.operands.at(0), width);
  b.address(i, 1, s.operands.at(returns ? 1 : 0), shared ? 4 : 8);
  b.list(i, s.operands.at(returns ? 2 : 1), width);
  if (s.operands.size() != (returns ? 3u : 2u)) return;
  const auto op = atomic_op(s.parts);
  if (!op) return;
  i.imm2 = static_cast<int64_t>(*op);
  with_type(s.type(), [&]<typename T>() {
    if constexpr (sizeof(T) >= 4)
      i.run = shared ? atomic<T, Space::shared> : atomic<T, Space::generic>;
  });
}

}  // namespace

std::byte* generic_at(const Warp& warp, const Inst& i, uint64_t address, size_t bytes) {
  if ((address & (bytes - 1)) != 0) no_address(warp, i, address, "misaligned address");
  const Block& block = *warp.block;
  const auto& parameters = block.function->parameter_bytes;
  if (!in_device_memory(address, bytes) &&
      !within(address, bytes, block.shared.get(), block.shared_bytes) &&
      !within(address, bytes, parameters.data(), parameters.size()) &&
      !within(address, bytes, warp.local.data(), warp.local.size()) &&
      !is_registered(address, bytes))
    no_address(warp, i, address, "no such memory:");
  return reinterpret_cast<std::byte*>(address);
}

std::byte* shared_at(const Warp& warp, const Inst& i, uint64_t address, size_t bytes) {
  if ((address & (std::min<size_t>(bytes, 16) - 1)) != 0)
    no_address(warp, i, address, "misaligned shared address");
  if (address + bytes > warp.block->shared_bytes)
    no_address(warp, i, address, "beyond shared memory:");
  return warp.block->shared.get() + address;
}

Decoders memory_decoders() {
  return {{"ld", decode_access},
          {"st", decode_access},
          {"atom", decode_atomic},
          {"red", decode_atomic}};
}

}  // namespace ringside::ptx
