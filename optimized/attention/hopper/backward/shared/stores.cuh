// How the copy engine takes final dk and dv from shared memory.
#pragma once

#include "optimized/attention/hopper/backward/shared/blocks.cuh"

namespace ringside::hopper::backward_detail {

// Panels of final dk or dv, of 64 keys of an item from `first_key` on, so many bytes apart.
template <int kBytes>
__device__ inline void store_keys(const CUtensorMap& map, const BlockNote& note, int first_key,
                                  int first_panel, int panels, uint32_t tile) {
  const int keys = note.keys - first_key;
  if (keys <= 0) return;
#pragma unroll
  for (int panel = 0; panel < panels; ++panel)
    store_box(map,
              ragged_box((first_panel + panel) * kPanelColumns, note.kv_head,
                         note.key_row + first_key, keys),
              tile + panel * kBytes);
}

}  // namespace ringside::hopper::backward_detail
