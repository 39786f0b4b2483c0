// What rows of queries cost a kernel against all keys of their sequence, in blocks of 128 x 128.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/plan/plan.h"

namespace ringside {

inline constexpr int kBlockRows = 128;  // of queries and of keys

class BlockCosts {
 public:
  explicit BlockCosts(const Problem& problem);

  int batch() const { return problem_.layout_q.batch(); }
  int rows(int seq) const { return problem_.layout_q.padded_len(seq); }
  int64_t all_rows() const { return problem_.layout_q.num_rows(); }
  int64_t all_work() const { return all_work_; }

  // Blocks that hold a visible pair; the first block of queries begins with the rows. Rows from a
  // multiple of a block to another or to the end take no loop.
  int64_t of(int seq, Interval rows) const;

 private:
  int64_t of_block(int seq, int begin, int end) const;

  const Problem& problem_;
  std::vector<int> first_;       // [batch] entry of a sequence
  std::vector<int64_t> before_;  // [blocks and one more of each sequence] of the blocks before
  int64_t all_work_ = 0;
};

}  // namespace ringside
