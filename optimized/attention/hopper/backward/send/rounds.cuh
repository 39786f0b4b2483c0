// The warp of the producer group that sends off what the consumers leave, where a group's place for
// dq holds two panels, and dq of a block leave in rounds.
#pragma once

#include "optimized/attention/hopper/backward/send/results.cuh"

namespace ringside::hopper::backward_detail {

template <Dq kDq, typename Shape, bool kFirstStores>
class RoundSender {
 public:
  __device__ RoundSender(const Parameters& parameters, PlainShared<Shape>& shared)
      : p_(parameters), maps_(parameters.maps), shared_(shared) {}

  // Until the groups have nothing more; by one thread: of a block a group's dq one round after the
  // other, then, of an item's last, final dk and dv.
  __device__ void run() {
    for (uint32_t block = 0;; ++block) {
      wait(shared_.barriers.dq_full[0], turns_[0] & 1);
      const BlockNote& note = shared_.notes[block % kNotes];
      if (note.flags & kStop) return;
      if constexpr (kFirstStores)
        if (note.flags & kFirst) wait_for_first(p_, note);
#pragma unroll
      for (int round = 0; round < Shape::kRounds; ++round) send_dq(note, round);
      if ((note.flags & kFinal) != 0 && (note.flags & kLast) != 0) send_keys(note);
      if constexpr (kFirstStores)
        if (note.flags & kLast) tell_others(p_, note);
    }
  }

 private:
  // Final dq of the panel that both have a half of lie in the first one's place.
  __device__ void send_dq(const BlockNote& note, int round) {
    if (kDq == Dq::store && Shape::kInHalves && round == 0) {
      for (int group = 0; group < kGroups; ++group) wait_for(group);
      show_to_async();
      store_queries<Shape, kDq>(maps_, note, Shape::dq_columns(0, 0), place_of(0));
      commit_stores();
      wait_until_read<0>();
      for (int group = 0; group < kGroups; ++group) free(group);
      return;
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const Columns columns = Shape::dq_columns(group, round);
      if (columns.number == 0) continue;
      const bool adds = kDq == Dq::add && !(kFirstStores && (note.flags & kStores) != 0);
      send(group,
           [&](uint32_t tile) { store_queries<Shape, kDq>(maps_, note, columns, tile, adds); });
    }
  }

  // Two panels at a time, as the place for dq holds them: where each group owns one of dk and dv,
  // of all keys; else of dv, and then of dk, of a group's keys.
  __device__ void send_keys(const BlockNote& note) {
    if constexpr (Shape::kInHalves)
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        send_panels(note, group, maps_.dv, 0, Shape::kVPanels);
#pragma unroll
    for (int panel = 0; panel < Shape::kQkPanels; panel += 2)
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        if (Shape::kInHalves || group == 0)
          send_panels(note, group, maps_.dk, panel, Shape::kQkPanels);
        else if (panel < Shape::kVPanels)
          send_panels(note, group, maps_.dv, panel, Shape::kVPanels);
  }
  __device__ void send_panels(const BlockNote& note, int group, const CUtensorMap& map, int panel,
                              int panels) {
    send(group, [&](uint32_t tile) {
      store_keys<kQueryPanel>(map, note, Shape::kInHalves ? group * kGroupKeys : 0, panel,
                              panels - panel < 2 ? 1 : 2, tile);
    });
  }

  template <typename Start>
  __device__ void send(int group, Start start) {
    wait_for(group);
    show_to_async();  // what four warps have written, who need not wait for the fence
    start(place_of(group));
    commit_stores();
    wait_until_read<0>();
    free(group);
  }
  __device__ void wait_for(int group) { wait(shared_.barriers.dq_full[group], turns_[group] & 1); }
  __device__ void free(int group) {
    arrive(shared_.barriers.dq_empty[group]);
    ++turns_[group];
  }
  __device__ uint32_t place_of(int group) const { return shared_address(shared_.dq[group]); }

  const Parameters& p_;
  const Maps& maps_;
  PlainShared<Shape>& shared_;
  uint32_t turns_[kGroups] = {};  // how often something of a group's was sent
};

}  // namespace ringside::hopper::backward_detail
