// Grouped-query heads: query head h of all uses kv head h / group_size. Buffers hold some of them.
#pragma once

#include "reference/rows/mask.h"
#include "reference/support/host_device.h"

namespace ringside {

struct ResidentHeads {
  int first_head = 0, first_kv_head = 0;  // of all, that of the buffers' first ones
  int group_size = 1;

  // Both count in the buffers.
  RINGSIDE_HD int kv_head_of(int head) const {
    return (first_head + head) / group_size - first_kv_head;
  }

  // Those of num_heads resident query heads that use a resident kv head.
  RINGSIDE_HD Interval query_heads_of(int kv_head, int num_heads) const {
    const int begin = (first_kv_head + kv_head) * group_size - first_head;
    const int end = begin + group_size;
    return {begin > 0 ? begin : 0, end < num_heads ? end : num_heads};
  }
};

}  // namespace ringside
