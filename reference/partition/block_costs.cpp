#include "reference/partition/block_costs.h"

#include <algorithm>

#include "reference/support/interrupt.h"

namespace ringside {

BlockCosts::BlockCosts(const Problem& problem) : problem_(problem) {
  for (int seq = 0; seq < batch(); ++seq) {
    check_interrupt(rows(seq) / kBlockRows + 16);
    first_.push_back(static_cast<int>(before_.size()));
    before_.push_back(0);
    for (int begin = 0; begin < rows(seq); begin += kBlockRows)
      before_.push_back(before_.back() +
                        of_block(seq, begin, std::min(begin + kBlockRows, rows(seq))));
    all_work_ += before_.back();
  }
}

int64_t BlockCosts::of(int seq, Interval part) const {
  const bool ends_a_block = part.end % kBlockRows == 0 || part.end == rows(seq);
  if (part.begin % kBlockRows == 0 && ends_a_block) {
    const int64_t* before = before_.data() + first_[seq];
    return before[(part.end + kBlockRows - 1) / kBlockRows] - before[part.begin / kBlockRows];
  }
  int64_t blocks = 0;
  for (int begin = part.begin; begin < part.end; begin += kBlockRows)
    blocks += of_block(seq, begin, std::min(begin + kBlockRows, part.end));
  return blocks;
}

// Both ends of what a row sees never decrease: from the first row's first key to the last's last.
int64_t BlockCosts::of_block(int seq, int begin, int end) const {
  const int len_q = problem_.layout_q.len(seq), len_k = problem_.layout_k.len(seq);
  end = std::min(end, len_q);
  if (begin >= end) return 0;  // padding
  const Interval first = problem_.mask.visible(begin, len_q, len_k);
  const Interval last = problem_.mask.visible(end - 1, len_q, len_k);
  if (last.end <= first.begin) return 0;
  return (last.end + kBlockRows - 1) / kBlockRows - first.begin / kBlockRows;
}

}  // namespace ringside
