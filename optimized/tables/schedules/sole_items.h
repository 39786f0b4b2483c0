// Who writes which rows. Items of a pass that are the only ones to write theirs: kernels may leave
// final results of those, in the caller's own arrays, where others' rows pass through sums in
// float32. And rows that nobody writes first: only those need to hold zeros before.
#pragma once

#include <vector>

#include "optimized/tables/build_work_list.h"
#include "reference/schedule/schedule.h"

namespace ringside {

// A list's items in two, in their order; partners stay where they are.
struct SplitItems {
  std::vector<WorkItem> sole, others;
};

struct SoleItems {
  std::vector<SplitItems> of_operation;  // [operation]
  std::vector<bool> row_is_sole;         // of the home sums: written by a sole item
  int rows = 0;                          // how many are
};

// Of a rank's schedule: lists[i] has the items of operation i, if it computes into the home sums.
// An item is sole where no other one, no copy, no sum and no message writes any of its rows.
SoleItems sole_items(const Schedule& schedule, const std::vector<HostWorkList>& lists);

// The rows that items write, in order, none touching the next.
std::vector<Interval> rows_written(const std::vector<WorkItem>& items);
// Those of [0, rows) that lie in none of `written`, which are in any order and may overlap.
std::vector<Interval> rows_left(int rows, std::vector<Interval> written);

}  // namespace ringside
