// Every rank receives all K/V in rank order, then computes its own queries in one step. No reorder
// is needed: each row knows its position.
#include "reference/interrupt.h"
#include "reference/transport/transport.h"

namespace ringside {

void all_gather(Plan& plan) {
  const int cp_size = plan.cp_size();
  const Range heads{0, plan.problem.num_kv_heads};
  const Stacked gathered = stack(plan, plan.home_kv);
  for (int rank = 0; rank < cp_size; ++rank) {
    Step step;
    step.q = plan.home_q[rank];
    step.kv = {gathered.shard, heads};
    if (plan.holds(rank)) step.tiles = add_tiles(plan, step.q.shard, step.kv.shard);
    if (cp_size > 1) {
      for (int peer = 0; peer < cp_size; ++peer) {
        check_interrupt(16);
        const int rows = plan.rows(plan.home_kv[peer]);
        add_message(step.before.sends,
                    {peer, Operand::kv, 0, plan.rows(plan.home_kv[rank]), heads});
        add_message(step.before.receives,
                    {peer, Operand::kv, gathered.row_begin[peer], rows, heads});
      }
      if (!step.before.empty()) step.before.kind = ExchangeKind::all_gather;
    }
    plan.steps_of_rank[rank].push_back(std::move(step));
  }
}

}  // namespace ringside
