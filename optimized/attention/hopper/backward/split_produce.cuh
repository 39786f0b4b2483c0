// What the producer group of the backward kernel does otherwise where each group of consumers owns
// one of dk and dv (backward_split.cuh).
#pragma once

#include "optimized/attention/hopper/backward/backward_send.cuh"

namespace ringside::hopper::backward_detail {

// The tiles of block after block; by one thread. What is free first comes first: K and V may have
// but one place, and dO of the block before is in use for longest.
template <typename Shape>
__device__ inline void load_tiles(const Parameters& p, SplitShared<Shape>& shared) {
  constexpr int kStages = Shape::kStages, kDoutStages = Shape::kDoutStages;
  constexpr int kKeyStages = Shape::kKeyStages;
  SplitBarriers<Shape>& barriers = shared.barriers;
  uint32_t item = 0;  // how many were loaded
  for (uint32_t block = 0;; ++block) {
    const BlockNote note = wait_for_note(shared, block);
    const uint32_t stage = block % kStages, dout_stage = block % kDoutStages;
    wait(barriers.empty[stage], block / kStages % 2 ^ 1);
    arrive(barriers.note_empty[block % kNotesAhead]);  // as load_tiles() of the others
    if (note.flags & kStop) return arrive(barriers.q_full[stage]);
    load_queries<Shape::kQkPanels>(p.maps.q, shared.q[stage], barriers.q_full[stage], note);
    if (note.flags & kFirst) {
      const uint32_t key_stage = item % kKeyStages;
      wait(barriers.k_empty[key_stage], item / kKeyStages % 2 ^ 1);
      load_keys<Shape, Shape::kQkPanels>(p.maps.k, shared.k[key_stage], barriers.k_full[key_stage],
                                         note);
      wait(barriers.v_empty, item % 2 ^ 1);
      load_keys<Shape, Shape::kVPanels>(p.maps.v, shared.v, barriers.v_full, note);
      ++item;
    }
    wait(barriers.dout_empty[dout_stage], block / kDoutStages % 2 ^ 1);
    load_queries<Shape::kVPanels>(p.maps.dout, shared.dout[dout_stage],
                                  barriers.dout_full[dout_stage], note);
  }
}

// Sends off what the groups have left, until they have nothing more; by one thread: of a block a
// group's panels of dq one after the other, then, of an item's last, what it owns, two at a time.
template <Dq kDq, typename Shape>
__device__ void send_results(const Parameters& parameters, SplitShared<Shape>& shared) {
  auto& barriers = shared.barriers;
  const Maps& maps = parameters.maps;
  uint32_t turns[kGroups] = {};
  for (uint32_t block = 0;; ++block) {
    wait(barriers.dq_full[0], turns[0] & 1);
    const BlockNote& note = shared.notes[block % kNotes];
    if (note.flags & kStop) return;
    const auto send = [&](int group, auto start) {
      wait(barriers.dq_full[group], turns[group] & 1);
      start(shared_address(shared.dq[group]));
      commit_stores();
      wait_until_read<0>();
      arrive(barriers.dq_empty[group]);
      ++turns[group];
    };
#pragma unroll
    for (int round = 0; round < Shape::kRounds; ++round)
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int panel = Shape::first_panel(group) + round;
        if (panel >= Shape::end_panel(group)) continue;
        send(group, [&](uint32_t tile) {
          store_queries<Shape, kDq>(maps, note, panel * kPanelColumns, tile);
        });
      }
    if ((note.flags & kFinal) == 0 || (note.flags & kLast) == 0) continue;
    const auto send_keys = [&](int group, const CUtensorMap& map, int panel, int panels) {
      send(group, [&](uint32_t tile) {
        store_keys<kQueryPanel>(map, note, 0, panel, panels - panel < 2 ? 1 : 2, tile);
      });
    };
#pragma unroll
    for (int panel = 0; panel < Shape::kQkPanels; panel += 2) {
      send_keys(0, maps.dk, panel, Shape::kQkPanels);
      if (panel < Shape::kVPanels) send_keys(1, maps.dv, panel, Shape::kVPanels);
    }
  }
}

}  // namespace ringside::hopper::backward_detail
