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

inline void SeenRuns::mark_rows(int64_t word, int from, int rows) {
  const uint32_t* const next_words = keys_.next_words().data();
  uint64_t* const words = seen_.data();
  while (rows > 0) {
    const int size = std::min(64 - from, rows);
    words[word] |= (~uint64_t{0} >> (64 - size)) << from;
    rows -= size;
    word = next_words[word];
    from = 0;
  }
}

void SeenRuns::mark(int key, Interval rows) {
  const int row = keys_.segment(key).row + rows.begin;
  mark_rows(keys_.word(keys_.owner(key), row / 64), row % 64, rows.size());
}

void SeenRuns::mark_whole(Interval keys) {
  if (keys.size() == 0) return;
  check_interrupt(2 * int64_t{keys.size()});
  const auto first_bits = keys_.first_bits(keys);
  if (keys_.are_rows(keys_.segment(keys.begin).seq)) {
    uint64_t* const words = seen_.data();
    for (const uint32_t bit : first_bits) words[bit / 64] |= uint64_t{1} << (bit % 64);
    return;
  }
  const auto rows = keys_.rows(keys);
  for (size_t i = 0; i < rows.size(); ++i)
    mark_rows(first_bits[i] / 64, static_cast<int>(first_bits[i] % 64), rows[i]);
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
