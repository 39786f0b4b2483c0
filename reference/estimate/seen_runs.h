// The rows that a rank sees of each home, marked bit by bit, and the runs of them that it fetches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/estimate/home_keys.h"

namespace ringside {

class SeenRuns {
 public:
  explicit SeenRuns(const HomeKeys& keys) : keys_(keys), seen_(keys.num_words()) {}

  void mark(int key, Interval rows);  // of its segment
  void mark_whole(Interval keys);

  // Of the next owner, with what lies between two of them where that is few rows.
  void find(int owner, int most_rows_between);
  void skip() { first_.push_back(runs_.size()); }

  std::span<const Interval> of(int owner) const {  // rows of its home
    const size_t end = owner + 1 < std::ssize(first_) ? first_[owner + 1] : runs_.size();
    return std::span(runs_).subspan(first_[owner], end - first_[owner]);
  }

 private:
  void mark_rows(int64_t word, int from, int rows);
  void add_bits(int row, uint64_t bits, int gap);
  void add(Interval rows, int gap);

  const HomeKeys& keys_;
  std::vector<uint64_t> seen_;
  std::vector<Interval> runs_;  // owner after owner
  std::vector<size_t> first_;   // of an owner
};

}  // namespace ringside
