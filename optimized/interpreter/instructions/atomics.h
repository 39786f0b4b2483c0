// Updates that other processes see whole.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "optimized/interpreter/machine/numbers.h"

namespace ringside::ptx {

enum class AtomicOp : uint8_t { add, max, min, bit_or, bit_and, exchange };

inline std::optional<AtomicOp> atomic_op(const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (part == "add") return AtomicOp::add;
    if (part == "max") return AtomicOp::max;
    if (part == "min") return AtomicOp::min;
    if (part == "or") return AtomicOp::bit_or;
    if (part == "and") return AtomicOp::bit_and;
    if (part == "exch") return AtomicOp::exchange;
  }
  return {};
}

template <typename T>
T updated(AtomicOp op, T old, T value) {
  if constexpr (std::is_integral_v<T>) {
    if (op == AtomicOp::bit_or) return old | value;
    if (op == AtomicOp::bit_and) return old & value;
    if (op == AtomicOp::add)
      return static_cast<T>(static_cast<Cell<T>>(old) + static_cast<Cell<T>>(value));
  }
  if (op == AtomicOp::add) return std::bit_cast<T>(to_cell<T>(old + value));
  if (op == AtomicOp::max) return std::max(old, value);
  return op == AtomicOp::min ? std::min(old, value) : value;
}

// What was there before.
template <typename T>
T update(AtomicOp op, T* at, T value) {
  auto* bits = reinterpret_cast<Cell<T>*>(at);
  Cell<T> seen = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(
      bits, &seen, std::bit_cast<Cell<T>>(updated(op, std::bit_cast<T>(seen), value)), false,
      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return std::bit_cast<T>(seen);
}

}  // namespace ringside::ptx
