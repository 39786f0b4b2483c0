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

// Bits [from, from + rows) of a word, all inside it.
uint64_t bits_of_word(int from, int rows) { return (~uint64_t{0} >> (64 - rows)) << from; }

}  // namespace

void SeenRuns::mark(int key, Interval rows) {
  const int owner = keys_.owner(key), row = keys_.segment(key).row;
  for (int begin = row + rows.begin, end = row + rows.end; begin < end;) {
    const int size = std::min(64 - begin % 64, end - begin);
    seen_[keys_.word(owner, begin / 64)] |= bits_of_word(begin % 64, size);
    begin += size;
  }
}

void SeenRuns::mark_whole(Interval keys) {
  check_interrupt(2 * int64_t{keys.size()});
  uint64_t* const words = seen_.data();
  const auto all = keys_.bits(keys);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto [first, rows] = all[i];
    const int from = static_cast<int>(first % 64);
    if (rows == 1)
      words[first / 64] |= uint64_t{1} << from;
    else if (rows > 0 && from + rows <= 64)
      words[first / 64] |= bits_of_word(from, rows);
    else
      mark(keys.begin + static_cast<int>(i), {0, rows});
  }
}

void SeenRuns::find(int owner, int most_rows_between) {
  skip();
  const int layers = keys_.num_layers(owner);
  check_interrupt(4 * int64_t{layers} + 1);
  for (int layer = 0; layer < layers; ++layer) {
    const uint64_t word = seen_[keys_.word(owner, layer)];
    const int row = layer * 64;
    if (word == 0) continue;
    if (may_have_gap(word, most_rows_between))
      add_bits(row, word, most_rows_between);
    else
      add({row + std::countr_zero(word), row + 64 - std::countl_zero(word)}, most_rows_between);
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
