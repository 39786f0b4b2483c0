#include "reference/plan/tiles.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "reference/rows/seen_rows.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

constexpr int kStepsOfTile = 16;  // what judging one costs, in simple operations

// Rows of tile.k, counted from its first.
Interval keys_of(const Problem& problem, const Tile& tile) {
  const SequenceMask mask{problem.mask, problem.layout_q.len(tile.q.seq),
                          problem.layout_k.len(tile.q.seq)};
  const int rows = tile.q.rows_below(mask.len_q);
  return rows > 0 ? keys_seen(mask, tile.k, tile.q, 0, rows) : Interval{};
}

bool sees_something(const Problem& problem, const Tile& tile) {
  return keys_of(problem, tile).size() > 0;
}

// Sorts intervals and joins those that meet.
std::vector<Interval> joined(std::vector<Interval> parts) {
  std::ranges::sort(parts, {}, &Interval::begin);
  std::vector<Interval> runs;
  for (const Interval& part : parts)
    if (!runs.empty() && part.begin <= runs.back().end)
      runs.back().end = std::max(runs.back().end, part.end);
    else
      runs.push_back(part);
  return runs;
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

std::vector<Interval> rows_seen(const Problem& problem, const Shard& q, const Shard& k) {
  std::vector<Interval> parts;
  for_each_tile(problem, q, k, [&](const Tile& tile) {
    const Interval rows = keys_of(problem, tile);
    parts.push_back({tile.k.row + rows.begin, tile.k.row + rows.end});
    return true;
  });
  return joined(std::move(parts));
}

int64_t visible_pairs(const Problem& problem, const Tile& tile) {
  const int s = tile.q.seq;
  return visible_pairs({problem.mask, problem.layout_q.len(s), problem.layout_k.len(s)}, tile.q,
                       tile.k);
}

// Where a step from query to query is a whole number of steps from key to key, both ends of what is
// seen move evenly up to the next change of the mask: what lies between is an arithmetic series.
int64_t visible_pairs(const SequenceMask& mask, const Segment& q, const Segment& k) {
  const int rows = q.rows_below(mask.len_q), rows_k = k.rows_below(mask.len_k);
  if (rows == 0 || rows_k == 0) return 0;
  if (SeenKeys(mask, k, q, 0, rows).all.size() == rows_k) return int64_t{rows} * rows_k;
  const int places[] = {0, mask.len_k, k.pos, k.position(rows_k - 1) + 1};
  const bool is_even = q.stride % k.stride == 0;
  int64_t twice = 0;
  for (int i = 0, next = 0; i < rows; i = next) {
    next = i + 1;
    if (is_even) {
      const int64_t change = mask.mask.next_change(q.position(i), mask.len_q, mask.len_k, places);
      next = static_cast<int>(std::min<int64_t>(rows, (change - q.pos - 1) / q.stride + 1));
    }
    const int64_t ends = int64_t{mask.visible_rows(k, q.position(i)).size()} +
                         mask.visible_rows(k, q.position(next - 1)).size();
    twice += ends * (next - i);
  }
  return twice / 2;
}

}  // namespace ringside
