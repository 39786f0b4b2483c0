// What tiles between shards would amount to, without making any: for every shard of queries and
// every shard of keys. Segments of a sequence are taken in the order of their positions: what a
// run of queries sees as a whole is a range of them, so that only those at its edges are judged one
// by one, by the same functions that count tiles.
#pragma once

#include <functional>
#include <vector>

#include "reference/plan/plan.h"
#include "reference/plan/tile_counts.h"

namespace ringside {

class ShardCounts {
 public:
  ShardCounts(const Problem& problem, std::vector<const Shard*> q, std::vector<const Shard*> k,
              const BlockSize& block_size);

  const TileCounts& of(int q, int k) const { return cells_[q * num_k_ + k]; }

 private:
  size_t num_k_;
  std::vector<TileCounts> cells_;  // [q shards][k shards]
};

// Of two shards, on this thread.
TileCounts count_line(const Problem& problem, const Shard& q, const Shard& k,
                      const BlockSize& block_size);

}  // namespace ringside
