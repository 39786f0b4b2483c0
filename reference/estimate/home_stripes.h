// All keys where they are at home, of ranks that own stripes: of every sequence, rank r the tokens
// r, r + cp_size, r + 2 cp_size and so on, padding included.
#pragma once

#include <span>
#include <vector>

#include "reference/plan/plan.h"

namespace ringside {

class HomeStripes {
 public:
  // Whether the homes of a plan are such, of queries and of keys.
  static bool are_stripes(const Plan& plan);

  explicit HomeStripes(const Plan& plan);

  // Of a sequence: how many ranks own some of it, the first ones; and where in their homes.
  int owners(int seq) const { return static_cast<int>(first_[seq + 1] - first_[seq]); }
  std::span<const int> first_rows(int seq) const {
    return std::span(rows_).subspan(first_[seq], owners(seq));
  }
  // Of how many ranks the stripes have a row more than those of the others.
  int longer(int seq) const { return lengths_[seq] % ranks_; }
  int rows(int seq, int owner) const { return (lengths_[seq] - owner - 1) / ranks_ + 1; }
  Segment stripe(int seq, int owner) const {
    return {seq, owner, ranks_, first_rows(seq)[owner], rows(seq, owner)};
  }
  int batch() const { return static_cast<int>(lengths_.size()); }

 private:
  int ranks_;
  std::vector<int> lengths_;   // of sequences, with padding
  std::vector<size_t> first_;  // [batch + 1] of a sequence in rows_
  std::vector<int> rows_;
};

}  // namespace ringside
