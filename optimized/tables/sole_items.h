// Which items of a pass are the only ones to write their rows: kernels may leave final results of
// those, in the caller's own arrays, where others' rows pass through sums in float32.
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

}  // namespace ringside
