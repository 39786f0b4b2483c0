// The packed stream cut as if it were one long sequence, sequence ends ignored: into cp_size runs
// (whole_pack), or into 2*cp_size chunks of which rank r owns r and 2*cp_size-1-r
// (whole_pack_zigzag). Fewer segments, but balanced only if the documents happen to be.
#include <algorithm>

#include "reference/partition/partition.h"

namespace ringside {
namespace {

void append_rows(Shard& shard, const PackedLayout& layout, int begin, int end) {
  const auto& starts = layout.cu_seqlens_padded();
  const auto first = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
  for (int s = static_cast<int>(first); s < layout.batch() && starts[s] < end; ++s) {
    const int from = std::max(begin, starts[s]), to = std::min(end, starts[s + 1]);
    append(shard, s, from - starts[s], 1, to - from);
  }
}

}  // namespace

Shard whole_pack(const PackedLayout& layout, int cp_size, int rank) {
  Shard shard;
  append_rows(shard, layout, cut(layout.num_rows(), cp_size, rank),
              cut(layout.num_rows(), cp_size, rank + 1));
  return shard;
}

Shard whole_pack_zigzag(const PackedLayout& layout, int cp_size, int rank) {
  const int chunks = 2 * cp_size;
  Shard shard;
  for (const int chunk : {rank, chunks - 1 - rank})
    append_rows(shard, layout, cut(layout.num_rows(), chunks, chunk),
                cut(layout.num_rows(), chunks, chunk + 1));
  return shard;
}

}  // namespace ringside
