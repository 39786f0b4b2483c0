// How the copy engine brings rows to shared memory: of a query block, and of an item of keys.
#pragma once

#include "optimized/attention/hopper/backward/shared/blocks.cuh"

namespace ringside::hopper::backward_detail {

// So many panels of a block's rows of Q or dO.
template <int kPanels>
__device__ inline void load_queries(const CUtensorMap& map, uint8_t* tile, Barrier& full,
                                    const BlockNote& note) {
  arrive_and_expect(full, kPanels * kQueryPanel);
  const uint32_t to = shared_address(tile);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    load_box(to + panel * kQueryPanel, map,
             ragged_box(panel * kPanelColumns, note.head, note.row, note.rows), full);
}

// So many panels of an item's rows of K or V.
template <typename Shape, int kPanels>
__device__ inline void load_keys(const CUtensorMap& map, uint8_t* tile, Barrier& full,
                                 const BlockNote& note) {
  arrive_and_expect(full, kPanels * Shape::kKeyPanel);
  const uint32_t to = shared_address(tile);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
#pragma unroll
    for (int half = 0; half < Shape::kKeyGroups; ++half)
      load_box(to + panel * Shape::kKeyPanel + half * kQueryPanel, map,
               ragged_box(panel * kPanelColumns, note.kv_head, note.key_row + half * kBoxRows,
                          rows_of_box(0, note.keys, half)),
               full);
}

}  // namespace ringside::hopper::backward_detail
