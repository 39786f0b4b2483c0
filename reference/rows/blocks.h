// What a kernel pays for a pair of segments: not pairs, but blocks of rows by rows.
//
// Query and key blocks are cut from the first row of each segment; where the segment or its valid
// tokens end, a block ends. A kernel computes every block that holds a visible pair as a whole,
// compares positions in those that hold hidden pairs, too, and loads and stores the rows of every
// query block that meets any. All of it follows from the first and last row of a block
// (seen_rows.h), so what is counted here costs a step for each query block at an edge of the mask,
// and one for all query blocks that see every key.
#pragma once

#include <algorithm>
#include <cstdint>

#include "reference/rows/seen_rows.h"

namespace ringside {

struct BlockSize {  // rows of a block
  int q = 128, k = 128;

  int64_t area() const { return int64_t{q} * k; }
};

struct BlockCounts {
  int64_t blocks = 0;          // that hold a visible pair
  int64_t partial_blocks = 0;  // of those: that hold a hidden pair, too
  int64_t visits = 0;          // query blocks that meet a key block

  bool operator==(const BlockCounts&) const = default;
};

// The blocks of one head of a pair of segments of one sequence.
BlockCounts count_blocks(const SequenceMask& mask, const Segment& q, const Segment& k,
                         const BlockSize& size = {});

// --- what the counts are made of

inline int num_blocks(int rows, int size) { return rows / size + (rows % size != 0); }

// The blocks of `rows` rows that lie inside an interval of them; the last one may be short.
inline Interval blocks_inside(Interval inside, int rows, int size) {
  const int begin = num_blocks(inside.begin, size);
  const int end = inside.end == rows ? num_blocks(rows, size) : inside.end / size;
  return {begin, std::max(begin, end)};
}

// Whether rows of `partner` that no row of `own` meets may lie between two that some do. Rows of
// stride 1 meet one run of positions, however far they go; others do in one window, if they meet
// always the same of the partner's positions that lie between them.
inline bool may_have_gaps(const Mask& mask, const Segment& own, const Segment& partner) {
  return own.stride != 1 && !(mask.is_one_window() && partner.stride % own.stride == 0);
}

struct BlockRun {        // query blocks that all meet as many key blocks
  Interval queries;      // at least one, counted in blocks
  int64_t keys = 0;      // key blocks that each of them meets: at least one
  int64_t all_seen = 0;  // of those: without a hidden pair
};

// The key blocks of one query block, its rows [begin, end).
BlockRun run_of_block(const SequenceMask& mask, const Segment& q, const Segment& k, Interval rows,
                      const BlockSize& size);

// visit(run) for runs of all query blocks that meet any key block, in order.
template <typename Visit>
void for_each_block_run(const SequenceMask& mask, const Segment& q, const Segment& k,
                        const BlockSize& size, Visit visit) {
  const int rows_q = q.rows_below(mask.len_q), rows_k = k.rows_below(mask.len_k);
  if (rows_q == 0 || rows_k == 0) return;
  const Interval some = queries_seeing(mask, q, k, 0, rows_k);
  if (some.size() <= 0) return;
  const SeeingQueries seeing(mask, q, k, 0, rows_k);
  const Interval whole = blocks_inside(seeing.all, rows_q, size.q);
  const int end = num_blocks(some.end, size.q);
  const auto one_by_one = [&](int first, int last) {
    for (int i = first; i < last; ++i) {
      const int begin = i * size.q, rows = std::min(size.q, rows_q - begin);
      BlockRun run = run_of_block(mask, q, k, {begin, begin + rows}, size);
      run.queries = {i, i + 1};
      if (run.keys > 0) visit(run);
    }
  };
  if (whole.size() == 0) return one_by_one(some.begin / size.q, end);
  const int64_t keys = num_blocks(rows_k, size.k);
  one_by_one(some.begin / size.q, whole.begin);
  visit(BlockRun{whole, keys, keys});
  one_by_one(whole.end, end);
}

// visit(interval) for the rows of `k` that some row of `q` sees, in order; intervals may touch.
template <typename Visit>
void for_each_seen_run(const SequenceMask& mask, const Segment& q, const Segment& k, Visit visit) {
  const int rows_q = q.rows_below(mask.len_q);
  if (rows_q == 0) return;
  if (!may_have_gaps(mask.mask, q, k)) {
    const Interval seen = keys_seen(mask, k, q, 0, rows_q);
    if (seen.size() > 0) visit(seen);
    return;
  }
  int seen_up_to = 0;
  for (int i = 0; i < rows_q; ++i) {
    const Interval keys = mask.visible_rows(k, q.position(i));
    const int begin = std::max(keys.begin, seen_up_to);
    if (keys.end <= begin) continue;
    visit(Interval{begin, keys.end});
    seen_up_to = keys.end;
  }
}

}  // namespace ringside
