#include "reference/tiles.h"

#include <algorithm>
#include <iterator>

#include "reference/interrupt.h"

namespace ringside {
namespace {

constexpr int kStepsOfTile = 16;  // what judging one costs, in simple operations
constexpr int kRowsOfLook = 1024;

bool sees_something(const Problem& problem, const Tile& tile) {
  const int len_q = problem.layout_q.len(tile.q.seq), len_k = problem.layout_k.len(tile.q.seq);
  const int rows = tile.q.rows_below(len_q);
  if (rows == 0) return false;
  // Both ends of the visible interval only ever grow: first and last row bound what the tile sees.
  const int lo = problem.mask.visible(tile.q.position(0), len_q, len_k).begin;
  const int hi = problem.mask.visible(tile.q.position(rows - 1), len_q, len_k).end;
  if (tile.k.rows_within({lo, hi}).size() == 0) return false;
  for (int i = 0; i < rows; ++i) {
    if (i % kRowsOfLook == kRowsOfLook - 1) check_interrupt(kRowsOfLook);
    if (visible_rows(problem, tile, i).size() > 0) return true;
  }
  return false;
}

// visit(tile) until it returns false; whether it never did.
template <typename Visit>
bool for_each_tile(const Problem& problem, const Shard& q, const Shard& k, Visit visit) {
  const auto before = [](const Segment& a, const Segment& b) { return a.seq < b.seq; };
  Shard sorted;
  if (!std::is_sorted(k.begin(), k.end(), before)) {
    sorted = k;
    std::stable_sort(sorted.begin(), sorted.end(), before);
  }
  const Shard& k_by_seq = sorted.empty() ? k : sorted;
  for (const Segment& q_segment : q) {
    const auto same_seq = std::ranges::equal_range(k_by_seq, q_segment.seq, {}, &Segment::seq);
    check_interrupt(kStepsOfTile * (std::ssize(same_seq) + 1));
    for (const Segment& k_segment : same_seq) {
      const Tile tile{q_segment, k_segment};
      if (sees_something(problem, tile) && !visit(tile)) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Tile> make_tiles(const Problem& problem, const Shard& q, const Shard& k) {
  std::vector<Tile> tiles;
  for_each_tile(problem, q, k, [&](const Tile& tile) {
    tiles.push_back(tile);
    return true;
  });
  return tiles;
}

bool has_tiles(const Problem& problem, const Shard& q, const Shard& k) {
  return !for_each_tile(problem, q, k, [](const Tile&) { return false; });
}

int64_t visible_pairs(const Problem& problem, const Tile& tile) {
  int64_t pairs = 0;
  const int rows = tile.q.rows_below(problem.layout_q.len(tile.q.seq));
  for (int i = 0; i < rows; ++i) pairs += visible_rows(problem, tile, i).size();
  return pairs;
}

}  // namespace ringside
