// What the tiles of a step amount to, of one head: pairs, blocks, visits, and the keys they see.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/plan/plan.h"
#include "reference/rows/blocks.h"

namespace ringside {

struct TileCounts {
  int64_t pairs = 0, blocks = 0, partial_blocks = 0;
  int64_t visits = 0;  // query blocks that meet a key block of any tile
  int64_t tiles = 0;
  int64_t rows_needed = 0;  // key rows that any tile sees

  TileCounts& operator+=(const TileCounts& other);
  TileCounts& operator-=(const TileCounts& other);
  bool operator==(const TileCounts&) const = default;
};

// Of tiles in the order of make_tiles(), all but rows_needed.
TileCounts count_tiles(const Problem& problem, std::span<const Tile> tiles,
                       const BlockSize& block_size);

struct SeenRows {  // of a segment: consecutive ones
  Segment segment;
  Interval rows;
};

// The key rows that any of the tiles sees, each once, in the order of the buffer.
std::vector<SeenRows> seen_keys(const Problem& problem, std::span<const Tile> tiles);

// Intervals, sorted and joined where they meet or touch.
void unite(std::vector<Interval>& intervals);

inline SequenceMask mask_of(const Problem& problem, int seq) {
  return {problem.mask, problem.layout_q.len(seq), problem.layout_k.len(seq)};
}

}  // namespace ringside
