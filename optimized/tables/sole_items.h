// Which items of a pass are the only ones to write their rows: kernels may leave final results of
// those, in the caller's own arrays, where others' rows pass through sums in float32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "optimized/tables/build_work_list.h"

namespace ringside {

// Of some sums, how often each row is written in a pass.
class RowWriters {
 public:
  explicit RowWriters(int rows) : writers_(static_cast<size_t>(rows)) {}

  void add(const WorkItem& item) { add(item.own.row + item.begin, item.end - item.begin); }
  void add(int row, int rows) {
    for (int i = row; i < row + rows; ++i) ++writers_[i];
  }

  bool is_sole(const WorkItem& item) const {
    const auto first = writers_.begin() + item.own.row;
    return std::all_of(first + item.begin, first + item.end, [](int n) { return n == 1; });
  }

 private:
  std::vector<int32_t> writers_;
};

// A list's items in two, in their order; partners stay where they are.
struct SplitItems {
  std::vector<WorkItem> sole, others;
};
inline SplitItems split_items(const HostWorkList& list, const RowWriters& writers) {
  SplitItems split;
  for (const WorkItem& item : list.items)
    (writers.is_sole(item) ? split.sole : split.others).push_back(item);
  return split;
}

}  // namespace ringside
