// A barrier of shared memory, in a word of the interpreter's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ringside::ptx {

struct Mbarrier {
  int phase = 0, expected, pending;  // threads
  int bytes = 0;                     // that copies still owe

  explicit Mbarrier(int threads) : expected(threads), pending(threads) {}

  static Mbarrier load(const std::byte* from) {
    uint64_t word;
    std::memcpy(&word, from, sizeof word);
    Mbarrier loaded(static_cast<int>(word >> 1 & kMost));
    loaded.phase = static_cast<int>(word & 1);
    loaded.pending = static_cast<int>(word >> 21 & kMost);
    loaded.bytes = static_cast<int>(static_cast<int64_t>(word) >> 41);
    return loaded;
  }
  void store(std::byte* to) const {
    const uint64_t word = static_cast<uint64_t>(phase) | static_cast<uint64_t>(expected) << 1 |
                          static_cast<uint64_t>(pending) << 21 |
                          static_cast<uint64_t>(int64_t{bytes}) << 41;
    std::memcpy(to, &word, sizeof word);
  }
  bool settle() {  // whether a phase has ended
    if (pending != 0 || bytes != 0) return false;
    phase ^= 1, pending = expected;
    return true;
  }

 private:
  static constexpr uint64_t kMost = (1 << 20) - 1;
};

}  // namespace ringside::ptx
