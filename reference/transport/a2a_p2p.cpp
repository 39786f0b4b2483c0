// All-to-all inside groups of neighbouring ranks, a ring of K/V between the groups.
//
// Rank p*a2a_size + a is member a of group p. Inside a group the members trade rows for heads,
// after which member a holds the rows of the whole group for its own range of heads; then K/V
// travel from member a of one group to member a of the next. Head ranges may be uneven, and a kv
// head that several ranges use is simply sent to several members: the transposed exchange sums its
// gradients.
#include <algorithm>

#include "reference/interrupt.h"
#include "reference/partition/partition.h"
#include "reference/tiles.h"
#include "reference/transport/transport.h"

namespace ringside {
namespace {

class RingOfGroups {
 public:
  RingOfGroups(Plan& plan, int a2a_size)
      : plan_(plan), a2a_size_(a2a_size), groups_(plan.cp_size() / a2a_size) {
    for (int group = 0; group < groups_; ++group) {
      q_.push_back(stack(plan, members(plan.home_q, group)));
      kv_.push_back(stack(plan, members(plan.home_kv, group)));
    }
    tiles_.resize(groups_);
    for (int group = 0; group < groups_; ++group)
      if (is_held(group))
        for (int owner = 0; owner < groups_; ++owner) {
          check_interrupt(16);
          tiles_[group].push_back(add_tiles(plan, q_[group].shard, kv_[owner].shard));
        }
    find_last_hops();
  }

  void fill_steps() {
    const int last = *std::max_element(last_hop_.begin(), last_hop_.end());
    for (int step = 0; step <= last; ++step)
      for (int rank = 0; rank < plan_.cp_size(); ++rank)
        plan_.steps_of_rank[rank].push_back(make_step(rank, step));
  }

 private:
  std::vector<Buffer> members(const std::vector<Buffer>& homes, int group) const {
    const auto first = homes.begin() + group * a2a_size_;
    return {first, first + a2a_size_};
  }

  bool is_held(int group) const {
    for (int member = 0; member < a2a_size_; ++member)
      if (plan_.holds(group * a2a_size_ + member)) return true;
    return false;
  }

  bool sees(int group, int owner) const {
    if (!tiles_[group].empty()) return tiles_[group][owner] != kEmpty;
    return has_tiles(plan_.problem, plan_.shards[q_[group].shard], plan_.shards[kv_[owner].shard]);
  }

  // Owner's K/V visit group owner+hop at hop 1, 2, ...; nobody needs them after the last hop.
  void find_last_hops() {
    for (int owner = 0; owner < groups_; ++owner) {
      int last = groups_ - 1;
      while (last > 0 && !sees((owner + last) % groups_, owner)) --last;
      last_hop_.push_back(last);
    }
  }

  Range q_heads(int member) const {
    const int n = plan_.problem.num_heads;
    return {cut(n, a2a_size_, member), cut(n, a2a_size_, member + 1)};
  }
  Range kv_heads(int member) const {
    return kv_heads_of(q_heads(member), plan_.problem.group_size());
  }
  int owner_at(int group, int step) const { return (group - step % groups_ + groups_) % groups_; }

  Step make_step(int rank, int step) const {
    check_interrupt(32 + 16 * (step == 0 ? a2a_size_ : 0));
    const int group = rank / a2a_size_, member = rank % a2a_size_, owner = owner_at(group, step);
    Step made;
    if (q_heads(member).size() > 0) {
      made.q = {q_[group].shard, q_heads(member)};
      if (step <= last_hop_[owner]) {
        made.kv = {kv_[owner].shard, kv_heads(member)};
        if (plan_.holds(rank)) made.tiles = tiles_[group][owner];
      }
    }
    if (step == 0 && a2a_size_ > 1) made.before = trade_rows_for_heads(rank);
    if (step > 0) made.before = shift_ring(rank, step);
    return made;
  }

  Exchange trade_rows_for_heads(int rank) const {
    const int group = rank / a2a_size_, member = rank % a2a_size_;
    const int rows_q = plan_.rows(plan_.home_q[rank]), rows_kv = plan_.rows(plan_.home_kv[rank]);
    Exchange trade{ExchangeKind::all_to_all, {}, {}};
    for (int other = 0; other < a2a_size_; ++other) {
      const int peer = group * a2a_size_ + other;
      const auto& q = q_[group].row_begin;
      const auto& kv = kv_[group].row_begin;
      add_message(trade.sends, {peer, Operand::q, 0, rows_q, q_heads(other)});
      add_message(trade.sends, {peer, Operand::kv, 0, rows_kv, kv_heads(other)});
      add_message(trade.receives,
                  {peer, Operand::q, q[other], q[other + 1] - q[other], q_heads(member)});
      add_message(trade.receives,
                  {peer, Operand::kv, kv[other], kv[other + 1] - kv[other], kv_heads(member)});
    }
    if (trade.empty()) trade.kind = ExchangeKind::none;
    return trade;
  }

  Exchange shift_ring(int rank, int step) const {
    const int group = rank / a2a_size_, member = rank % a2a_size_, cp_size = plan_.cp_size();
    const int next = (rank + a2a_size_) % cp_size,
              previous = (rank - a2a_size_ + cp_size) % cp_size;
    const int sent = owner_at(group, step - 1), received = owner_at(group, step);
    Exchange shift{ExchangeKind::ring_shift, {}, {}};
    if (step <= last_hop_[sent])
      add_message(shift.sends,
                  {next, Operand::kv, 0, kv_[sent].row_begin.back(), kv_heads(member)});
    if (step <= last_hop_[received])
      add_message(shift.receives,
                  {previous, Operand::kv, 0, kv_[received].row_begin.back(), kv_heads(member)});
    if (shift.empty()) shift.kind = ExchangeKind::none;
    return shift;
  }

  Plan& plan_;
  int a2a_size_, groups_;
  std::vector<Stacked> q_, kv_;          // [groups] what a group holds after its all-to-all
  std::vector<std::vector<int>> tiles_;  // [group][owner] tile list; none of groups not held
  std::vector<int> last_hop_;            // [owner]
};

}  // namespace

void a2a_p2p(Plan& plan, int a2a_size) { RingOfGroups(plan, a2a_size).fill_steps(); }

}  // namespace ringside
