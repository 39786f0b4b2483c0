#include "reference/plan/tile_counts.h"

#include <algorithm>
#include <iterator>

#include "reference/plan/tiles.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

constexpr int kStepsOfCount = 64;  // what counting one costs, in simple operations

constexpr int64_t TileCounts::*kFields[] = {&TileCounts::pairs,          &TileCounts::blocks,
                                            &TileCounts::partial_blocks, &TileCounts::visits,
                                            &TileCounts::tiles,          &TileCounts::rows_needed};

int64_t united_size(std::vector<Interval>& intervals) {
  unite(intervals);
  int64_t size = 0;
  for (const Interval& interval : intervals) size += interval.size();
  return size;
}

}  // namespace

TileCounts& TileCounts::operator+=(const TileCounts& other) {
  for (const auto field : kFields) this->*field += other.*field;
  return *this;
}

TileCounts& TileCounts::operator-=(const TileCounts& other) {
  for (const auto field : kFields) this->*field -= other.*field;
  return *this;
}

void unite(std::vector<Interval>& intervals) {
  const auto begins = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  if (!std::is_sorted(intervals.begin(), intervals.end(), begins))
    std::sort(intervals.begin(), intervals.end(), begins);
  size_t kept = 0;
  for (size_t i = 1; i < intervals.size(); ++i) {
    if (intervals[i].begin <= intervals[kept].end)
      intervals[kept].end = std::max(intervals[kept].end, intervals[i].end);
    else
      intervals[++kept] = intervals[i];
  }
  if (!intervals.empty()) intervals.resize(kept + 1);
}

TileCounts count_tiles(const Problem& problem, std::span<const Tile> tiles,
                       const BlockSize& block_size) {
  TileCounts counts;
  std::vector<Interval> visited;  // query blocks of one segment
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto& [q, k] = tiles[i];
    const SequenceMask mask = mask_of(problem, q.seq);
    check_interrupt(kStepsOfCount);
    counts.pairs += visible_pairs(mask, q, k);
    ++counts.tiles;
    for_each_block_run(mask, q, k, block_size, [&](const BlockRun& run) {
      check_interrupt(4);
      counts.blocks += run.queries.size() * run.keys;
      counts.partial_blocks += run.queries.size() * (run.keys - run.all_seen);
      visited.push_back(run.queries);
    });
    if (i + 1 < tiles.size() && tiles[i + 1].q == q) continue;
    counts.visits += united_size(visited);
    visited.clear();
  }
  return counts;
}

std::vector<SeenRows> seen_keys(const Problem& problem, std::span<const Tile> tiles) {
  std::vector<const Tile*> by_key;
  for (const Tile& tile : tiles) by_key.push_back(&tile);
  std::stable_sort(by_key.begin(), by_key.end(),
                   [](const Tile* a, const Tile* b) { return a->k.row < b->k.row; });
  std::vector<SeenRows> seen;
  std::vector<Interval> rows;  // of one segment
  for (size_t i = 0; i < by_key.size(); ++i) {
    const auto& [q, k] = *by_key[i];
    check_interrupt(kStepsOfCount);
    for_each_seen_run(mask_of(problem, q.seq), q, k, [&](Interval run) { rows.push_back(run); });
    if (i + 1 < by_key.size() && by_key[i + 1]->k == k) continue;
    unite(rows);
    for (const Interval& run : rows) seen.push_back({k, run});
    rows.clear();
  }
  return seen;
}

}  // namespace ringside
