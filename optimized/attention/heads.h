// The heads of one launch.
#pragma once

#include "optimized/attention/kernel.h"
#include "reference/attention/heads.h"

namespace ringside {

RINGSIDE_HD inline int kv_head_of(const AttentionShape& s, int head) {  // both resident
  return ResidentHeads{s.first_head, s.first_kv_head, s.group_size}.kv_head_of(head);
}

// The resident query heads that use a resident kv head.
RINGSIDE_HD inline Interval query_heads_of(const AttentionShape& s, int kv_head) {
  return ResidentHeads{s.first_head, s.first_kv_head, s.group_size}.query_heads_of(kv_head,
                                                                                   s.num_heads);
}

}  // namespace ringside
