// Each sequence cut into cp_size runs, run r to rank r. The skeleton: to add a partition, copy this
// file, say which positions `rank` owns, and add a line to the table in partition.cpp.
#include "reference/partition/partition.h"

namespace ringside {

Shard contiguous(const PackedLayout& layout, int cp_size, int rank) {
  Shard shard;
  for (int s = 0; s < layout.batch(); ++s) {
    const int begin = cut(layout.padded_len(s), cp_size, rank);
    const int end = cut(layout.padded_len(s), cp_size, rank + 1);
    append(shard, s, begin, 1, end - begin);
  }
  return shard;
}

}  // namespace ringside
