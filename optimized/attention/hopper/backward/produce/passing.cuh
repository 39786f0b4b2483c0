// How items that take turns at dq let the next one pass at a block: by the thread that brings
// tiles, since that has nothing to do for most of a block, and who sends dq off has no time for a
// fence that waits until sums are in memory.
#pragma once

#include "optimized/attention/hopper/backward/shared/notes.cuh"
#include "optimized/attention/hopper/machine/turn.h"

namespace ringside::hopper::backward_detail {

// Blocks are let pass in their order. dq of a block are sent while the next one is computed: when
// its rows are free, those of the block before are about to leave, and are let pass. For its own,
// rows would come late. But for those without which nothing would move, as an item may wait for one
// that the same block of threads has had. kBrings: sums may be brought to blocks when these have
// their turn.
template <bool kBrings, typename Shape>
class Passing {
 public:
  __device__ Passing(const Parameters& parameters, PlainShared<Shape>& shared)
      : p_(parameters), shared_(shared) {}

  // Before anything is waited for to bring this block.
  __device__ void before(const BlockNote& note, uint32_t block) {
    // Keys come to where those of an item were that has its turn at this block but two, or had it.
    if ((note.flags & kFirst) != 0) {
      if (block > 2 && block - first_ <= kStages) let_pass(block - 2);
      first_ = block;
    }
    // What was sent before a block that waits for its turn is let pass before the place of its rows
    // is asked for.
    if (kBrings && block >= kStages && (note_of(block - kStages).flags & kCarried) != 0)
      let_pass(block - kStages);
  }
  // The block's rows are on their way.
  __device__ void behind_rows(uint32_t block) {
    if (block > kStages) let_pass(block - kStages);
  }
  __device__ void at_the_end(uint32_t blocks) { let_pass(blocks); }

 private:
  static constexpr uint32_t kStages = Shape::kStages, kSent = Barriers<Shape>::kSent;

  __device__ const BlockNote& note_of(uint32_t block) const {
    return shared_.notes[block % kNotes];
  }
  __device__ void let_pass(uint32_t end) {  // all blocks in front of this one
#pragma unroll 1
    for (; passed_ < end; ++passed_) {
      wait(shared_.barriers.dq_sent[passed_ % kSent], passed_ / kSent % 2);
      let_next_pass(word_of_turns(p_, note_of(passed_)));
    }
  }

  const Parameters& p_;
  PlainShared<Shape>& shared_;
  uint32_t passed_ = 0;  // blocks
  uint32_t first_ = 0;   // of the item's that began last
};

}  // namespace ringside::hopper::backward_detail
