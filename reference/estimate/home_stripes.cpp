#include "reference/estimate/home_stripes.h"

#include <algorithm>

#include "reference/support/interrupt.h"

namespace ringside {
namespace {

bool is_stripes(const Shard& home, const PackedLayout& layout, int ranks, int rank) {
  auto next = home.begin();
  for (int seq = 0; seq < layout.batch(); ++seq) {
    const int length = layout.padded_len(seq);
    if (rank >= length) continue;
    if (next == home.end() || next->seq != seq || next->pos != rank || next->stride != ranks ||
        next->len != (length - rank - 1) / ranks + 1)
      return false;
    ++next;
  }
  return next == home.end();
}

}  // namespace

bool HomeStripes::are_stripes(const Plan& plan) {
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    check_interrupt(4 * int64_t{plan.problem.layout_k.batch()} + 1);
    if (!is_stripes(plan.shard(plan.home_q[rank]), plan.problem.layout_q, plan.cp_size(), rank) ||
        !is_stripes(plan.shard(plan.home_kv[rank]), plan.problem.layout_k, plan.cp_size(), rank))
      return false;
  }
  return true;
}

HomeStripes::HomeStripes(const Plan& plan) : ranks_(plan.cp_size()) {
  const PackedLayout& layout = plan.problem.layout_k;
  std::vector<int> next(ranks_);
  first_.push_back(0);
  for (int seq = 0; seq < layout.batch(); ++seq) {
    lengths_.push_back(layout.padded_len(seq));
    const int owners = std::min(ranks_, lengths_.back());
    check_interrupt(4 * int64_t{owners} + 1);
    rows_.insert(rows_.end(), next.begin(), next.begin() + owners);
    first_.push_back(rows_.size());
    for (int owner = 0; owner < owners; ++owner) next[owner] += rows(seq, owner);
  }
}

}  // namespace ringside
