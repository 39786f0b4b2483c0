// Of how many heads a backward launch's items of keys are taken at a time.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside {

// Of how many at most, of a list by document, so that what items of a few documents read and add to
// stays in the cache, or much of it. Where many query heads share a key head, those of one are
// enough sooner. A launch that ends with a section of a few heads ends late: these numbers divide
// most numbers of heads. longest: rows that an item meets at most, or, of lengths that only a
// device knows, a rank's share of a document's keys. in_part: each item meets other rows than the
// next, as of a causal mask; else they walk over the same ones. Measured.
inline constexpr int kEveryHead = INT32_MAX;
RINGSIDE_HD inline int heads_of_documents(int longest, int group_size, bool in_part) {
  constexpr int kManyHeads = 8;
  if (!in_part) return longest < 2048 ? kEveryHead : longest < 12288 ? 4 : 2;
  if (longest < (group_size < kManyHeads ? 8192 : 6144)) return kEveryHead;
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
