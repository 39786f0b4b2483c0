// The warp of the producer group that has the copy engine bring tiles, and send final dv off from
// where they come to.
#pragma once

#include "optimized/attention/hopper/backward/produce/leaving_dv.cuh"
#include "optimized/attention/hopper/backward/produce/passing.cuh"
#include "optimized/attention/hopper/backward/shared/loads.cuh"
#include "optimized/attention/hopper/backward/shared/notes.cuh"

namespace ringside::hopper::backward_detail {

// The tiles of block after block; by one thread.
template <Dq kDq, bool kInTurn, typename Shape>
__device__ __forceinline__ void load_all_tiles(const Parameters& p, PlainShared<Shape>& shared) {
  constexpr uint32_t kStages = Shape::kStages, kKeyStages = Shape::kKeyStages;
  Barriers<Shape>& barriers = shared.barriers;
  uint32_t item = 0;  // how many were loaded
  Passing<kMayCarry<Shape, kDq>, Shape> passing(p, shared);
  LeavingDv<kDq, Shape> dv(p.maps.dv, shared);
  for (uint32_t block = 0;; ++block) {
    const BlockNote note = wait_for_note(shared, block);
    const uint32_t stage = block % kStages, key_stage = item % kKeyStages;
    const auto load_k = [&] {
      wait(barriers.k_empty[key_stage], item / kKeyStages % 2 ^ 1);
      load_keys<Shape, Shape::kQkPanels>(p.maps.k, shared.k[key_stage], barriers.k_full[key_stage],
                                         note);
    };
    if constexpr (kInTurn) passing.before(note, block);
    if (kKeyStages > 1 && (note.flags & kFirst)) load_k();
    if (block >= kStages) dv.send(block - kStages);
    wait(barriers.empty[stage], block / kStages % 2 ^ 1);
    // Who sends dq has begun with the block before the one that was here, or ends the one before
    // that. Of earlier notes nobody asks any more: others, kNotesAhead further on, may be written.
    arrive(barriers.note_empty[block % kNotesAhead]);
    if (note.flags & kStop) {
      arrive(barriers.q_full[stage]);
      if constexpr (kInTurn) passing.at_the_end(block);
      for (uint32_t last = block < kStages ? 0 : block - kStages + 1; last < block; ++last)
        dv.send(last);
      return;
    }
    dv.expect(note, block);
    load_queries<Shape::kQkPanels>(p.maps.q, shared.q[stage], barriers.q_full[stage], note);
    load_queries<Shape::kVPanels>(p.maps.dout, shared.dout[stage], barriers.dout_full[stage], note);
    if constexpr (kInTurn) passing.behind_rows(block);
    if (note.flags & kFirst) {
      if (kKeyStages == 1) load_k();  // whose place becomes free last
      wait(barriers.v_empty, item % 2 ^ 1);
      load_keys<Shape, Shape::kVPanels>(p.maps.v, shared.v, barriers.v_full, note);
      ++item;
    }
  }
}
template <Dq kDq, typename Shape>
__device__ inline void load_tiles(const Parameters& p, PlainShared<Shape>& shared) {
  if constexpr (kTakesTurns<Shape, kDq>)  // code of their own, as in send_results()
    if (p.turns != nullptr) return load_all_tiles<kDq, true>(p, shared);
  load_all_tiles<kDq, false>(p, shared);
}

}  // namespace ringside::hopper::backward_detail
