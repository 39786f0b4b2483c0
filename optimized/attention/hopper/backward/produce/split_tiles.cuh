// How tiles are brought where each group of consumers owns one of dk and dv (consume/split.cuh).
#pragma once

#include "optimized/attention/hopper/backward/shared/loads.cuh"
#include "optimized/attention/hopper/backward/shared/notes.cuh"

namespace ringside::hopper::backward_detail {

// The tiles of block after block; by one thread. What is free first comes first: K and V may have
// but one place, and dO of the block before is in use for longest.
template <Dq kDq, typename Shape>
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

}  // namespace ringside::hopper::backward_detail
