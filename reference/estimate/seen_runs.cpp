#include "reference/estimate/seen_runs.h"

#include <algorithm>
#include <bit>

#include "reference/support/interrupt.h"

namespace ringside {
namespace {

// Whether more than `gap` bits that are not set may lie between two that are.
bool may_have_gap(uint64_t bits, int gap) {
  if (gap >= 63) return false;
  const int begin = std::countr_zero(bits), end = 64 - std::countl_zero(bits);
  uint64_t zeros = ~bits & (~uint64_t{0} << begin) & (~uint64_t{0} >> (64 - end));
  for (int length = 1; zeros != 0 && 2 * length <= gap + 1; length *= 2) zeros &= zeros >> length;
  return zeros != 0;
}

}  // namespace

void SeenRuns::mark(int key, Interval rows) {
  mark_bits(int64_t{keys_.bits(key).first} + rows.begin, rows.size());
}

void SeenRuns::mark_whole(Interval keys) {
  check_interrupt(2 * int64_t{keys.size()});
  for (const auto& [first, rows] : keys_.bits(keys)) mark_bits(first, rows);
}

inline void SeenRuns::mark_bits(int64_t bit, int rows) {
  uint64_t* const words = seen_.data();
  if (rows == 1) {
    words[bit / 64] |= uint64_t{1} << (bit % 64);
    return;
  }
  for (const int64_t end = bit + rows; bit < end;) {
    const int from = static_cast<int>(bit % 64);
    const int size = static_cast<int>(std::min<int64_t>(64 - from, end - bit));
    words[bit / 64] |= (~uint64_t{0} >> (64 - size)) << from;
    bit += size;
  }
}

void SeenRuns::find(int owner, int most_rows_between) {
  skip();
  const auto words = std::span(seen_).subspan(
      keys_.first_word(owner), keys_.first_word(owner + 1) - keys_.first_word(owner));
  check_interrupt(4 * std::ssize(words) + 1);
  for (size_t i = 0; i < words.size(); ++i) {
    const int row = static_cast<int>(i) * 64;
    if (words[i] == 0) continue;
    if (may_have_gap(words[i], most_rows_between))
      add_bits(row, words[i], most_rows_between);
    else
      add({row + std::countr_zero(words[i]), row + 64 - std::countl_zero(words[i])},
          most_rows_between);
  }
}

void SeenRuns::add_bits(int row, uint64_t bits, int gap) {
  while (bits != 0) {
    const int begin = std::countr_zero(bits), size = std::countr_one(bits >> begin);
    add({row + begin, row + begin + size}, gap);
    bits &= begin + size == 64 ? 0 : ~uint64_t{0} << (begin + size);
  }
}

void SeenRuns::add(Interval rows, int gap) {
  const bool is_first = runs_.size() == first_.back();
  if (!is_first && rows.begin - runs_.back().end <= gap)
    runs_.back().end = rows.end;
  else
    runs_.push_back(rows);
}

}  // namespace ringside
