#include "reference/rows/blocks.h"

namespace ringside {
namespace {

// Row by row: the ends of what rows see never decrease, so no key block is met again once passed.
int64_t key_blocks_of_rows(const SequenceMask& mask, const Segment& q, const Segment& k,
                           Interval rows, int size) {
  int64_t met = 0;
  int next = 0;  // the first key block that is not counted yet
  for (int i = rows.begin; i < rows.end; ++i) {
    const Interval seen = mask.visible_rows(k, q.position(i));
    if (seen.size() == 0) continue;
    const int begin = std::max(next, seen.begin / size), end = num_blocks(seen.end, size);
    met += std::max(0, end - begin);
    next = std::max(next, end);
  }
  return met;
}

}  // namespace

BlockRun run_of_block(const SequenceMask& mask, const Segment& q, const Segment& k, Interval rows,
                      const BlockSize& size) {
  const SeenKeys seen(mask, k, q, rows.begin, rows.end);
  if (seen.some.size() <= 0) return {};
  BlockRun run;
  run.all_seen = blocks_inside(seen.all, k.rows_below(mask.len_k), size.k).size();
  if (may_have_gaps(mask.mask, q, k)) {
    run.keys = key_blocks_of_rows(mask, q, k, rows, size.k);
  } else {
    const Interval some = keys_seen(mask, k, q, rows.begin, rows.end);
    if (some.size() > 0) run.keys = num_blocks(some.end, size.k) - some.begin / size.k;
  }
  return run;
}

BlockCounts count_blocks(const SequenceMask& mask, const Segment& q, const Segment& k,
                         const BlockSize& size) {
  BlockCounts counts;
  for_each_block_run(mask, q, k, size, [&](const BlockRun& run) {
    counts.visits += run.queries.size();
    counts.blocks += run.queries.size() * run.keys;
    counts.partial_blocks += run.queries.size() * (run.keys - run.all_seen);
  });
  return counts;
}

}  // namespace ringside
