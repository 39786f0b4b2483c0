// Who computes what, when, from which rows: plain data, made once, interpreted by everybody.
//
// Each rank walks its steps. A step first exchanges buffers, then computes its tiles; a tile
// indexes the RESIDENT buffers of that step, never another rank's. Shards and tile lists are kept
// once in a pool and named by index, because ranks share them (every rank of an all-to-all computes
// the same tiles for other heads). build_plan (transport/transport.h) makes plans, verify.h proves
// them, execute.h runs them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "reference/plan/exchange.h"
#include "reference/rows/mask.h"
#include "reference/rows/packed_layout.h"
#include "reference/rows/segment.h"

namespace ringside {

struct Tile {
  Segment q, k;  // of one sequence
  bool operator==(const Tile&) const = default;
};

struct Buffer {   // what lies in memory: rows x heads
  int shard = 0;  // index into Plan::shards
  Range heads;    // row i, head heads.begin+j is stored at [i, j]
  bool operator==(const Buffer&) const = default;
};

struct Step {
  Exchange before;
  Buffer q, kv;   // resident once the exchange is done
  int tiles = 0;  // index into Plan::tile_lists
  bool operator==(const Step&) const = default;
};

// What a plan is made for.
struct Problem {
  PackedLayout layout_q, layout_k;  // same batch; a sequence attends to its own keys only
  Mask mask;
  int num_heads = 1, num_kv_heads = 1;

  // Query head h uses kv head h / group_size().
  int group_size() const { return num_heads / num_kv_heads; }
  bool operator==(const Problem&) const = default;
};

struct Plan {
  Problem problem;
  std::string partition, comm;                   // names, for people
  std::vector<Shard> shards;                     // pool; shards[0] is empty
  std::vector<std::vector<Tile>> tile_lists;     // pool; tile_lists[0] is empty
  std::vector<Buffer> home_q, home_kv;           // [cp_size] what each rank owns, all heads
  std::vector<std::vector<Step>> steps_of_rank;  // [cp_size][num_steps]
  std::vector<int> held;  // where it has the tiles of some ranks alone: which; empty: of all

  int cp_size() const { return static_cast<int>(home_q.size()); }
  int num_steps() const {
    return steps_of_rank.empty() ? 0 : static_cast<int>(steps_of_rank[0].size());
  }
  const Shard& shard(const Buffer& buffer) const { return shards[buffer.shard]; }
  const std::vector<Tile>& tiles(const Step& step) const { return tile_lists[step.tiles]; }
  int rows(const Buffer& buffer) const { return num_rows(shard(buffer)); }
  bool holds(int rank) const {
    return held.empty() || std::binary_search(held.begin(), held.end(), rank);
  }
  bool operator==(const Plan&) const = default;
};

// The kv heads that query heads `q_heads` use.
inline Range kv_heads_of(Range q_heads, int group_size) {
  if (q_heads.size() == 0) return {};
  return {q_heads.begin / group_size, (q_heads.end - 1) / group_size + 1};
}

// The rows of `tile.k` (counted from tile.k.row) that row i of `tile.q` sees: one interval.
inline Interval visible_rows(const Problem& problem, const Tile& tile, int i) {
  const int s = tile.q.seq;
  return tile.k.rows_within(
      problem.mask.visible(tile.q.position(i), problem.layout_q.len(s), problem.layout_k.len(s)));
}

}  // namespace ringside
