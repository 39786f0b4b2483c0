// Notes of blocks in shared memory: how they are written, shown and waited for.
#pragma once

#include "optimized/attention/hopper/backward/shared/blocks.cuh"

namespace ringside::hopper::backward_detail {

// A note's place, once nobody reads what is there; by the first lane it is written, and then shown.
template <typename Shape>
__device__ inline BlockNote& begin_note(PlainShared<Shape>& shared, uint32_t block) {
  wait(shared.barriers.note_empty[block % kNotesAhead], block / kNotesAhead % 2 ^ 1);
  return shared.notes[block % kNotes];
}
template <typename Shape>
__device__ inline void publish(PlainShared<Shape>& shared, uint32_t block, int flags) {
  if (threadIdx.x % 32 != 0) return;
  shared.notes[block % kNotes].flags = flags;
  arrive(shared.barriers.note_full[block % kNotes]);
}
template <typename Shape>
__device__ inline const BlockNote& wait_for_note(PlainShared<Shape>& shared, uint32_t block) {
  wait(shared.barriers.note_full[block % kNotes], block / kNotes % 2);
  return shared.notes[block % kNotes];
}

// The word of a block that counts the items whose turn at it is over.
__device__ inline unsigned* word_of_turns(const Parameters& p, const BlockNote& note) {
  return p.turns + int64_t{note.row} * p.shape.num_heads + note.head;
}

}  // namespace ringside::hopper::backward_detail
