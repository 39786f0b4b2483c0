// Dual chunks: each sequence cut into 2*cp_size chunks, rank r owns chunk r and its mirror image
// 2*cp_size-1-r, so that under a causal mask every rank gets a cheap and an expensive one.
// Transformer Engine's THD order is the case in which 2*cp_size divides every padded length.
#include "reference/partition/partition.h"

namespace ringside {

Shard zigzag(const PackedLayout& layout, int cp_size, int rank) {
  const int chunks = 2 * cp_size;
  Shard shard;
  for (int s = 0; s < layout.batch(); ++s)
    for (const int chunk : {rank, chunks - 1 - rank}) {
      const int begin = cut(layout.padded_len(s), chunks, chunk);
      const int end = cut(layout.padded_len(s), chunks, chunk + 1);
      append(shard, s, begin, 1, end - begin);
    }
  return shard;
}

}  // namespace ringside
