// How final dv leave from where an item's last rows were: by the thread that brings tiles, which
// waits for that place, while who sends dq off is busy with those of two blocks.
#pragma once

#include "optimized/attention/hopper/backward/shared/notes.cuh"
#include "optimized/attention/hopper/backward/shared/stores.cuh"

namespace ringside::hopper::backward_detail {

template <Dq kDq, typename Shape>
class LeavingDv {
 public:
  __device__ LeavingDv(const CUtensorMap& map, PlainShared<Shape>& shared)
      : map_(map), shared_(shared) {}

  // Rows of this block are brought.
  __device__ void expect(const BlockNote& note, uint32_t block) {
    if (leaves_rows<Shape, kDq>(note.flags)) expected_ |= 1u << block % kStages;
  }
  // From where rows of this block were, if it is the last of an item that leaves some; more may
  // come then.
  __device__ void send(uint32_t block) {
    if constexpr (kLeavesRows<Shape, kDq>) {
      const uint32_t stage = block % kStages;
      if ((expected_ >> stage & 1) == 0) return;
      auto& barriers = shared_.barriers;
      wait(barriers.dv_full[stage], expected_ >> (kOdd + stage) & 1);
      expected_ ^= 1u << stage | 1u << (kOdd + stage);
      show_to_async();
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group)
        store_keys<kQueryPanel>(map_, shared_.notes[block % kNotes], group * kGroupKeys, 0,
                                Shape::kVPanels,
                                shared_address(place_of_dv(shared_, group, stage)));
      commit_stores();
      wait_until_read<0>();
#pragma unroll 1
      for (int i = 0; i < Barriers<Shape>::kAll; ++i) arrive(barriers.empty[stage]);
    }
  }

 private:
  static constexpr uint32_t kStages = Shape::kStages, kOdd = 16;

  const CUtensorMap& map_;
  PlainShared<Shape>& shared_;
  // A bit a stage: whether some are to leave from there; from kOdd on, whether an odd number has.
  uint32_t expected_ = 0;
};

}  // namespace ringside::hopper::backward_detail
