// What the forward and the backward pass of execute.h share: heads of tensors, items on threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/attention/cpu_kernels.h"
#include "reference/attention/heads.h"
#include "reference/attention/partial.h"
#include "reference/attention/tile_attention.h"
#include "reference/execute/execute.h"
#include "reference/support/interrupt.h"
#include "reference/support/parallel.h"

namespace ringside::execution {

inline constexpr int64_t kPairsWorthThreads = int64_t{1} << 14;

inline In head_of(const Tensor& x, int head) {
  return {x.at(0, head), static_cast<std::ptrdiff_t>(x.heads) * x.dim, x.dim};
}
inline Out head_of(Tensor& x, int head) {
  return {x.at(0, head), static_cast<std::ptrdiff_t>(x.heads) * x.dim, x.dim};
}

inline int kv_head_of(const Plan& plan, const Step& step, int head) {  // both counted in the buffer
  return ResidentHeads{step.q.heads.begin, step.kv.heads.begin, plan.problem.group_size()}
      .kv_head_of(head);
}

// Runs items on all cores, or right here when starting threads would take longer than the work.
template <typename Run>
void run_items(int items, int64_t pairs, Run run) {
  cpu_level();  // a bad RINGSIDE_CPU_LEVEL is refused here, not in a thread
  if (pairs >= kPairsWorthThreads) {
    parallel_for(items, run);
  } else {
    for (int i = 0; i < items; ++i) run(i);
  }
}

inline int64_t pairs_at_most(const Plan& plan, int step_index) {
  int64_t pairs = 0;
  for (const auto& steps : plan.steps_of_rank) {
    check_interrupt(static_cast<int64_t>(plan.tiles(steps[step_index]).size()) + 1);
    for (const Tile& tile : plan.tiles(steps[step_index]))
      pairs += int64_t{tile.q.len} * tile.k.len * steps[step_index].q.heads.size();
  }
  return pairs;
}

// visit(row, visible keys) for every valid query row that a rank owns.
template <typename Visit>
void for_each_home_row(const Plan& plan, int rank, Visit visit) {
  const auto& [layout_q, layout_k, mask, num_heads, num_kv_heads] = plan.problem;
  for (const Segment& s : plan.shard(plan.home_q[rank]))
    for (int i = 0; i < s.rows_below(layout_q.len(s.seq)); ++i)
      visit(s.row + i, mask.visible(s.position(i), layout_q.len(s.seq), layout_k.len(s.seq)));
}

// d/dsink: the sink's own weight exp(sink - lse) takes from every value, and has none.
inline void add_sink_gradients(const Plan& plan, int rank, const std::vector<double>& sinks,
                               const Tensor& lse, const Tensor& delta, std::vector<double>& dsink) {
  for_each_home_row(plan, rank, [&](int row, Interval visible) {
    if (visible.size() == 0) return;  // out is 0, whatever dout is
    for (size_t head = 0; head < sinks.size(); ++head) {
      const int h = static_cast<int>(head);
      const double weight = std::exp(sinks[head] - *lse.at(row, h));
      dsink[head] -= std::max(weight, kLeastWeight) * *delta.at(row, h);  // NaN stays
    }
  });
}

}  // namespace ringside::execution
