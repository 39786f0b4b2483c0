// In which order the items of a launch are taken, by blocks of threads that each take one after the
// other: a section of heads after the other, in it all items, longest first as lists are, and each
// item for all heads of the section.
#pragma once

#include <cstdint>

#include "reference/host_device.h"

namespace ringside::hopper {

struct QueueEntry {
  int item = 0, head = 0;
};

struct QueueOrder {
  int heads = 1;             // of the launch
  int heads_of_section = 1;  // the last section may have fewer

  RINGSIDE_HD int64_t size(int items) const { return int64_t{items} * heads; }
  RINGSIDE_HD QueueEntry at(int64_t index, int items) const {
    const int section_size = items * heads_of_section;
    const int section = static_cast<int>(index / section_size);
    const int first = section * heads_of_section, left = heads - first;
    const int here = left < heads_of_section ? left : heads_of_section;
    const int within = static_cast<int>(index - int64_t{section} * section_size);
    return {within / here, first + within % here};
  }
};

// Sections as wide as lets their keys and values stay in the L2 cache, but of no less than two key
// heads: the last items of a section are short, and others must be there to run beside them.
inline int heads_of_section(int heads, int group_size, int64_t bytes_of_kv_head) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  const int64_t fit = bytes_of_kv_head > 0 ? kBytes / bytes_of_kv_head : heads;
  const int64_t wide = (fit > 2 ? fit : 2) * group_size;
  return static_cast<int>(wide < heads ? wide : heads);
}

}  // namespace ringside::hopper
