// Tokens dealt like cards: rank r owns positions r, r+cp_size, r+2*cp_size, ... of each sequence.
#include "reference/partition/partition.h"

namespace ringside {

Shard striped(const PackedLayout& layout, int cp_size, int rank) {
  Shard shard;
  for (int s = 0; s < layout.batch(); ++s)
    append(shard, s, rank, cp_size, cut(layout.padded_len(s) - rank + cp_size - 1, cp_size, 1));
  return shard;
}

}  // namespace ringside
