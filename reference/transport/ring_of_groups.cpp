#include "reference/transport/ring_of_groups.h"

#include "reference/support/interrupt.h"

namespace ringside {

RingOfGroups::RingOfGroups(Plan& plan, int a2a_size, StackOrder order)
    : plan_(plan), a2a_size_(a2a_size), groups_(plan.cp_size() / a2a_size) {
  for (int group = 0; group < groups_; ++group) {
    q_.push_back(stack(plan, members(plan.home_q, group), order));
    kv_.push_back(stack(plan, members(plan.home_kv, group), order));
  }
  if (a2a_size_ == 1) return;
  for (int member = 0; member < a2a_size_; ++member)
    if (q_heads(member).size() > 0) with_heads_.push_back(member);
  with_rows_.resize(groups_);
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (plan.rows(plan.home_q[rank]) > 0 || plan.rows(plan.home_kv[rank]) > 0)
      with_rows_[group_of(rank)].push_back(rank % a2a_size_);
}

std::vector<Buffer> RingOfGroups::members(const std::vector<Buffer>& homes, int group) const {
  const auto first = homes.begin() + group * a2a_size_;
  return {first, first + a2a_size_};
}

Range RingOfGroups::q_heads(int member) const {
  const int n = plan_.problem.num_heads;
  return {cut(n, a2a_size_, member), cut(n, a2a_size_, member + 1)};
}

Range RingOfGroups::kv_heads(int member) const {
  return kv_heads_of(q_heads(member), plan_.problem.group_size());
}

Step RingOfGroups::make_step(int rank, int step) const {
  const int group = rank / a2a_size_, member = rank % a2a_size_, owner = owner_at(group, step);
  const bool trades = step == 0 && a2a_size_ > 1;
  check_interrupt(32 +
                  (trades ? 16 * (std::ssize(with_heads_) + std::ssize(with_rows_[group])) : 0));
  Step made;
  if (q_heads(member).size() > 0) {
    made.q = {q_[group].shard, q_heads(member)};
    if (step <= last_hop_[owner]) made.kv = {kv_[owner].shard, kv_heads(member)};
  }
  if (trades) made.before = trade_rows_for_heads(rank);
  if (step > 0) made.before = shift_ring(rank, step);
  return made;
}

Exchange RingOfGroups::trade_rows_for_heads(int rank) const {
  const int group = rank / a2a_size_, member = rank % a2a_size_;
  const int rows_q = plan_.rows(plan_.home_q[rank]), rows_kv = plan_.rows(plan_.home_kv[rank]);
  Exchange trade{ExchangeKind::all_to_all, {}, {}};
  for (const int other : with_heads_) {
    const int peer = group * a2a_size_ + other;
    add_message(trade.sends, {peer, Operand::q, 0, rows_q, q_heads(other)});
    add_message(trade.sends, {peer, Operand::kv, 0, rows_kv, kv_heads(other)});
  }
  if (q_heads(member).size() > 0)
    for (const int other : with_rows_[group]) {
      const int peer = group * a2a_size_ + other;
      add_message(trade.receives, {peer, Operand::q, q_[group].row[other],
                                   plan_.rows(plan_.home_q[peer]), q_heads(member)});
      add_message(trade.receives, {peer, Operand::kv, kv_[group].row[other],
                                   plan_.rows(plan_.home_kv[peer]), kv_heads(member)});
    }
  if (trade.empty()) trade.kind = ExchangeKind::none;
  return trade;
}

Exchange RingOfGroups::shift_ring(int rank, int step) const {
  const int group = rank / a2a_size_, member = rank % a2a_size_, cp_size = plan_.cp_size();
  const int next = (rank + a2a_size_) % cp_size, previous = (rank - a2a_size_ + cp_size) % cp_size;
  const int sent = owner_at(group, step - 1), received = owner_at(group, step);
  Exchange shift{ExchangeKind::ring_shift, {}, {}};
  if (step <= last_hop_[sent])
    add_message(shift.sends,
                {next, Operand::kv, 0, num_rows(plan_.shards[kv_[sent].shard]), kv_heads(member)});
  if (step <= last_hop_[received])
    add_message(shift.receives, {previous, Operand::kv, 0,
                                 num_rows(plan_.shards[kv_[received].shard]), kv_heads(member)});
  if (shift.empty()) shift.kind = ExchangeKind::none;
  return shift;
}

}  // namespace ringside
