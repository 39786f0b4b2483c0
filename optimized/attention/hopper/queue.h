// In which order the items of a launch are taken, by blocks of threads that each take one after the
// other. In sections: a section of heads after the other, in it all items, longest first as lists
// are, and each item for all heads of the section. Or so that they end together: the longer half in
// sections, then the shorter half for all heads side by side: the long items of the last section
// begin early, and what they leave idle at the end has short ones to do.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside::hopper {

// Fewer entries than these: numbers of them, and what blocks ask for behind the last, are 32 bits.
inline constexpr int64_t kMostEntries = int64_t{1} << 31;

struct QueueEntry {
  int item = 0, head = 0;
};

struct QueueOrder {
  int heads = 1;             // of the launch
  int heads_of_section = 1;  // the last section may have fewer

  RINGSIDE_HD unsigned size(int items) const { return static_cast<unsigned>(items) * heads; }
  RINGSIDE_HD QueueEntry ending_together(unsigned index, int items) const {
    const int longer = items / 2;
    if (index < size(longer)) return in_sections(index, longer);
    const unsigned behind = index - size(longer), item = behind / heads;
    return {longer + static_cast<int>(item), static_cast<int>(behind - item * heads)};
  }

  RINGSIDE_HD QueueEntry in_sections(unsigned index, int items) const {
    const unsigned section_size = static_cast<unsigned>(items) * heads_of_section;
    const unsigned section = index / section_size, within = index - section * section_size;
    const int first = static_cast<int>(section) * heads_of_section, left = heads - first;
    const unsigned here = left < heads_of_section ? left : heads_of_section;
    const unsigned item = within / here;
    return {static_cast<int>(item), first + static_cast<int>(within - item * here)};
  }
};

// Sections as wide as lets their keys and values stay in the L2 cache, but of no less than two key
// heads.
inline int heads_of_section(int heads, int group_size, int64_t bytes_of_kv_head) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  const int64_t fit = bytes_of_kv_head > 0 ? kBytes / bytes_of_kv_head : heads;
  const int64_t wide = (fit > 2 ? fit : 2) * group_size;
  return static_cast<int>(wide < heads ? wide : heads);
}

}  // namespace ringside::hopper
