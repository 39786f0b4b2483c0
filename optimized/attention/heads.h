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

// Of how many heads items of a list by document are taken at a time, so that what those of a few
// documents read of them stays in the cache, or much of it. Where many query heads share a key
// head, those of one are enough sooner. A launch that ends with a section of a few heads ends late:
// these numbers divide most numbers of heads. longest: rows of keys of a document. Measured.
RINGSIDE_HD inline int heads_of_documents(int longest, int group_size) {
  constexpr int kManyHeads = 8;
  if (longest < (group_size < kManyHeads ? 8192 : 6144)) return 16;
  return longest < 16384 ? 8 : longest < 32768 ? 4 : 2;
}

// Whether a launch by sections of heads would end late: the last section ends when the longest item
// does. longest: of all work of a head, what that item has. Heads side by side are slower
// elsewhere, as a section's rows stay in the cache.
inline bool ends_late_by_sections(double longest, int heads, int processors) {
  constexpr double kMostIdle = 0.1;  // of a processor's work, measured
  return longest * processors / heads > kMostIdle;
}

}  // namespace ringside
