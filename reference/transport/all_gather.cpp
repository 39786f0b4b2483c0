// Every rank receives all K/V, then computes its own queries in one step. Keys land where a
// sequence goes on from chunk to chunk: in rank order, blocks of keys would end at every chunk's
// border.
#include "reference/support/interrupt.h"
#include "reference/transport/gather.h"

namespace ringside {

Gather::Gather(Plan& plan, StackOrder order)
    : plan_(plan), gathered_(stack(plan, plan.home_kv, order)) {}

Step Gather::make_step(int rank) const {
  const Range heads{0, plan_.problem.num_kv_heads};
  Step step;
  step.q = plan_.home_q[rank];
  step.kv = {gathered_.shard, heads};
  if (plan_.cp_size() == 1) return step;
  for (int peer = 0; peer < plan_.cp_size(); ++peer) {
    check_interrupt(16);
    const int rows = plan_.rows(plan_.home_kv[peer]);
    add_message(step.before.sends, {peer, Operand::kv, 0, plan_.rows(plan_.home_kv[rank]), heads});
    add_message(step.before.receives, {peer, Operand::kv, gathered_.row[peer], rows, heads});
  }
  if (!step.before.empty()) step.before.kind = ExchangeKind::all_gather;
  return step;
}

void all_gather(Plan& plan, StackOrder order) {
  const Gather gather(plan, order);
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    Step step = gather.make_step(rank);
    if (plan.holds(rank)) step.tiles = add_tiles(plan, step.q.shard, step.kv.shard);
    plan.steps_of_rank[rank].push_back(std::move(step));
  }
}

}  // namespace ringside
