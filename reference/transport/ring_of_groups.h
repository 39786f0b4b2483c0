// All-to-all inside groups of neighbouring ranks, a ring of K/V between the groups: which rows are
// resident when, whoever needs no tiles for it (a2a_p2p.cpp makes them).
//
// Rank p*a2a_size + a is member a of group p. Inside a group the members trade rows for heads,
// after which member a holds the rows of the whole group for its own range of heads; then K/V
// travel from member a of one group to member a of the next. Head ranges may be uneven, and a kv
// head that several ranges use is simply sent to several members: the transposed exchange sums its
// gradients.
#pragma once

#include <algorithm>
#include <vector>

#include "reference/partition/partition.h"
#include "reference/transport/transport.h"

namespace ringside {

class RingOfGroups {
 public:
  RingOfGroups(Plan& plan, int a2a_size,
               StackOrder order);  // adds what the groups hold to the plan's shards

  int groups() const { return groups_; }
  int group_of(int rank) const { return rank / a2a_size_; }
  int q_shard(int group) const { return q_[group].shard; }
  const Stacked& kv(int owner) const { return kv_[owner]; }
  int kv_shard(int owner) const { return kv_[owner].shard; }
  // Whose K/V a group holds in a step.
  int owner_at(int group, int step) const { return (group - step % groups_ + groups_) % groups_; }

  // Owner's K/V visit group owner+hop at hop 1, 2, ...; nobody needs them after the last hop.
  // Groups without rows, of which there may be millions, are not asked.
  template <typename Sees>  // sees(group, owner): whether any query of the group sees any key
  void find_last_hops(Sees sees) {
    std::vector<int> seeing, owners;  // rising
    for (int group = 0; group < groups_; ++group) {
      if (q_shard(group) != kEmpty) seeing.push_back(group);
      if (kv_shard(group) != kEmpty) owners.push_back(group);
    }
    last_hop_.assign(groups_, 0);
    num_steps_ = 1;
    for (const int owner : owners) {
      // From the group before the owner back to the one behind it.
      const auto first = std::ranges::upper_bound(seeing, owner) - seeing.begin();
      const auto count = std::ssize(seeing);
      for (auto i = count - 1; i >= 0; --i) {
        const int group = seeing[(first + i) % count];
        if (group == owner || !sees(group, owner)) continue;
        last_hop_[owner] = (group - owner + groups_) % groups_;
        num_steps_ = std::max(num_steps_, last_hop_[owner] + 1);
        break;
      }
    }
  }

  // From here on the last hops must be known.
  int num_steps() const { return num_steps_; }
  int last_hop(int owner) const { return last_hop_[owner]; }
  Step make_step(int rank, int step) const;  // without tiles

 private:
  std::vector<Buffer> members(const std::vector<Buffer>& homes, int group) const;
  Range q_heads(int member) const;
  Range kv_heads(int member) const;
  Exchange trade_rows_for_heads(int rank) const;
  Exchange shift_ring(int rank, int step) const;

  const Plan& plan_;
  int a2a_size_, groups_;
  std::vector<Stacked> q_, kv_;  // [groups] what a group holds after its all-to-all
  // Members that trade, where groups have several: of all groups; [groups]. Millions may not.
  std::vector<int> with_heads_;
  std::vector<std::vector<int>> with_rows_;
  std::vector<int> last_hop_;  // [owner]
  int num_steps_ = 0;
};

}  // namespace ringside
