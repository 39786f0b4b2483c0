// The tiles of a ring of groups (ring_of_groups.h): those of a group and an owner stand once, its
// members compute them for other heads.
#include "reference/plan/tiles.h"
#include "reference/support/interrupt.h"
#include "reference/transport/ring_of_groups.h"

namespace ringside {
namespace {

class TilesOfGroups {
 public:
  TilesOfGroups(Plan& plan, int a2a_size, StackOrder order)
      : plan_(plan), ring_(plan, a2a_size, order) {
    tiles_.resize(ring_.groups());
    for (int rank = 0; rank < plan.cp_size(); ++rank)
      if (const int group = ring_.group_of(rank); plan.holds(rank) && tiles_[group].empty())
        add_tiles_of(group);
    ring_.find_last_hops([this](int group, int owner) { return sees(group, owner); });
  }

  void fill_steps() {
    for (int step = 0; step < ring_.num_steps(); ++step)
      for (int rank = 0; rank < plan_.cp_size(); ++rank) {
        Step made = ring_.make_step(rank, step);
        const int group = ring_.group_of(rank);
        if (made.kv.heads.size() > 0 && plan_.holds(rank))
          made.tiles = tiles_[group][ring_.owner_at(group, step)];
        plan_.steps_of_rank[rank].push_back(std::move(made));
      }
  }

 private:
  void add_tiles_of(int group) {
    for (int owner = 0; owner < ring_.groups(); ++owner) {
      check_interrupt(16);
      tiles_[group].push_back(add_tiles(plan_, ring_.q_shard(group), ring_.kv_shard(owner)));
    }
  }

  bool sees(int group, int owner) const {
    if (!tiles_[group].empty()) return tiles_[group][owner] != kEmpty;
    return has_tiles(plan_.problem, plan_.shards[ring_.q_shard(group)],
                     plan_.shards[ring_.kv_shard(owner)]);
  }

  Plan& plan_;
  RingOfGroups ring_;
  std::vector<std::vector<int>> tiles_;  // [group][owner] tile list; none of groups not held
};

}  // namespace

void a2a_p2p(Plan& plan, int a2a_size, StackOrder order) {
  TilesOfGroups(plan, a2a_size, order).fill_steps();
}

}  // namespace ringside
