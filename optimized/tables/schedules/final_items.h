// Who writes which rows. Items of a pass before or behind which nobody writes theirs: kernels may
// leave final results of the latter, in the caller's own arrays, where others' rows pass through
// sums in float32. And rows that nobody writes first: only those need to hold zeros before.
#pragma once

#include <vector>

#include "optimized/tables/build_work_list.h"
#include "reference/schedule/schedule.h"

namespace ringside {

struct FinalItems {
  std::vector<bool> row_is_final;  // of the home sums: left by a final item
  int rows = 0;                    // how many are
  bool sums_unused = true;         // no other item writes any
};

// Says so of items of a rank's schedule (WorkItem::alone): lists[i] has those of operation i, if it
// computes into the home sums. Writers are items, copies, sums and messages. Forward, an item goes
// on from what others have left of its rows, and is final where none writes one of them behind it.
// Backward, what it leaves final are its own gradients alone: where none does at all.
FinalItems tell_final_items(const Schedule& schedule, std::vector<HostWorkList>& lists);

// The rows that items write, in order, none touching the next.
std::vector<Interval> rows_written(const std::vector<WorkItem>& items);
// Those of [0, rows) that lie in none of `written`, which are in any order and may overlap.
std::vector<Interval> rows_left(int rows, std::vector<Interval> written);

}  // namespace ringside
