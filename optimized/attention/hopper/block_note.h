// What a block of keys is to the two groups of rows that share it: the producer writes a note of it
// beside the block's keys, and consumers ask nothing else about items, segments and masks.
#pragma once

#include <cstdint>

#include "optimized/attention/hopper/machine/box.h"
#include "reference/rows/mask.h"

namespace ringside::hopper {

inline constexpr int kGroups = 2;
inline constexpr int kGroupRows = kBoxRows, kItemRows = kGroups * kGroupRows;

// In `flags`; what is about group g is shifted by g * kBitsOfGroup. A group that sees some of a
// block works on all of it: code for half a block would be as long as what it spares, and
// instructions have to fit a multiprocessor's cache.
inline constexpr uint32_t kSees = 1, kMasked = 2;  // kMasked: ask each row
inline constexpr int kBitsOfGroup = 2;
inline constexpr uint32_t kLastBlock = 1 << 6;     // of the item
inline constexpr uint32_t kStop = 1 << 7;          // there is no further item
inline constexpr uint32_t kBothHaveRows = 1 << 8;  // the groups take turns
inline constexpr uint32_t kResumes = 1 << 9;       // the item goes on from what others have left
inline constexpr uint32_t kFinal = 1 << 10;        // nobody goes on from the item

struct alignas(16) BlockNote {
  int32_t row = 0;   // of the buffer of queries: the item's first
  int32_t rows = 0;  // of the item
  int32_t head = 0;
  uint32_t flags = 0;

  RINGSIDE_HD bool sees(int group) const { return flags >> group * kBitsOfGroup & kSees; }
  RINGSIDE_HD bool is_masked(int group) const { return flags >> group * kBitsOfGroup & kMasked; }
  // Whether all rows see all of the block. Elsewhere weights of 0 meet its values.
  RINGSIDE_HD bool is_clear() const {
    constexpr uint32_t kBoth = kSees | kSees << kBitsOfGroup;
    return (flags & ((1u << kGroups * kBitsOfGroup) - 1)) == (rows > kGroupRows ? kBoth : kSees);
  }
};

// What some and all rows of a group see of a segment of keys.
struct GroupSight {
  Interval some, all;

  GroupSight() = default;
  // From what its first and last rows see; both ends never decrease from row to row.
  RINGSIDE_HD GroupSight(Interval first, Interval last)
      : some{first.begin, last.end > first.begin ? last.end : first.begin},
        all{last.begin, first.end} {}

  // The bits of one group for the block of so many keys that begins at `begin`.
  RINGSIDE_HD uint32_t flags_of(int begin, int keys) const {
    const int end = begin + keys;
    if (some.end <= begin || end <= some.begin || some.size() == 0) return 0;
    return kSees | (all.begin <= begin && end <= all.end ? 0 : kMasked);
  }
};

}  // namespace ringside::hopper
