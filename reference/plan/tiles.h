// Pairing what is asked with what is resident: the tiles of one step.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/plan/plan.h"
#include "reference/rows/seen_rows.h"

namespace ringside {

// One tile for every pair of segments of the same sequence in which some query sees some key,
// ordered by query row. A pair that sees nothing makes no tile.
std::vector<Tile> make_tiles(const Problem& problem, const Shard& q, const Shard& k);

// Whether there is any.
bool has_tiles(const Problem& problem, const Shard& q, const Shard& k);

// The rows of key buffer `k` that rows of `q` see, as runs, rising and apart. Of a pair of segments
// all rows from the first to the last that is seen count; where strides differ, some between may be
// seen by nobody.
std::vector<Interval> rows_seen(const Problem& problem, const Shard& q, const Shard& k);

// How many (query, key) pairs of one head the tile computes: in steps by the changes of the mask,
// not by rows, as long as a stride of queries is a multiple of the stride of keys.
int64_t visible_pairs(const Problem& problem, const Tile& tile);
int64_t visible_pairs(const SequenceMask& mask, const Segment& q, const Segment& k);

}  // namespace ringside
