#include "optimized/tables/schedules/final_items.h"

#include <algorithm>

namespace ringside {
namespace {

// Of some sums, which operations are the first and the last to write each row, and how often it is
// written.
class RowWriters {
 public:
  explicit RowWriters(int rows) : writers_(static_cast<size_t>(rows)) {}

  void add(int operation, const WorkItem& item) {
    add(operation, item.own.row + item.begin, item.end - item.begin);
  }
  void add(int operation, const Operation& op, int buffer) {
    if (op.kind == OperationKind::copy || op.kind == OperationKind::combine)
      if (op.to.buffer == buffer)
        for (const RowRun& run : op.row_runs())
          for (int i = 0; i < run.rows; ++i) add(operation, run.to + i * run.to_step, 1);
    for (const ScheduledMessage& message : op.receives)
      if (message.block.buffer == buffer) add(operation, message.block.row, message.block.rows);
  }

  bool none_but(const WorkItem& item) const {
    return all_of(item, [&](const Writers& row) { return row.times == 1; });
  }
  bool none_before(int operation, const WorkItem& item) const {
    return all_of(item, [&](const Writers& row) { return row.first == operation; });
  }
  bool none_behind(int operation, const WorkItem& item) const {
    return all_of(item, [&](const Writers& row) { return row.last == operation; });
  }

 private:
  struct Writers {
    int first = 0, last = 0, times = 0;  // operations are added in their order
  };
  void add(int operation, int row, int rows) {
    for (int i = row; i < row + rows; ++i) {
      Writers& of = writers_[i];
      if (of.times++ == 0) of.first = operation;
      of.last = operation;
    }
  }
  template <typename Holds>
  bool all_of(const WorkItem& item, Holds holds) const {
    const auto first = writers_.begin() + item.own.row;
    return std::all_of(first + item.begin, first + item.end, holds);
  }

  std::vector<Writers> writers_;
};

}  // namespace

FinalItems tell_final_items(const Schedule& schedule, std::vector<HostWorkList>& lists) {
  const int home = schedule.home_item_sums(), rows = schedule.buffers[home].rows;
  RowWriters writers(rows);
  for (int i = 0; i < static_cast<int>(lists.size()); ++i) {
    for (const WorkItem& item : lists[i].items) writers.add(i, item);
    writers.add(i, schedule.operations[i], home);
  }

  FinalItems found;
  found.row_is_final.resize(static_cast<size_t>(rows));
  for (int i = 0; i < static_cast<int>(lists.size()); ++i)
    for (WorkItem& item : lists[i].items) {
      const bool alone = writers.none_but(item);
      const bool goes_on = schedule.pass == Pass::forward;
      const bool before = goes_on ? writers.none_before(i, item) : alone;
      const bool behind = goes_on ? writers.none_behind(i, item) : alone;
      item.alone = (before ? kAloneBefore : 0) | (behind ? kAloneBehind : 0);
      found.sums_unused = found.sums_unused && alone;
      if (!behind) continue;
      for (int row = item.begin; row < item.end; ++row)
        found.row_is_final[item.own.row + row] = true;
      found.rows += item.end - item.begin;
    }
  return found;
}

std::vector<Interval> rows_written(const std::vector<WorkItem>& items) {
  std::vector<Interval> rows;
  for (const WorkItem& item : items)
    rows.push_back({item.own.row + item.begin, item.own.row + item.end});
  std::ranges::sort(rows, {}, &Interval::begin);
  std::vector<Interval> joined;
  for (const Interval& next : rows)
    if (joined.empty() || joined.back().end < next.begin)
      joined.push_back(next);
    else
      joined.back().end = std::max(joined.back().end, next.end);
  return joined;
}

std::vector<Interval> rows_left(int rows, std::vector<Interval> written) {
  std::ranges::sort(written, {}, &Interval::begin);
  std::vector<Interval> left;
  int reached = 0;
  for (const Interval& next : written) {
    if (reached < next.begin) left.push_back({reached, next.begin});
    reached = std::max(reached, next.end);
  }
  if (reached < rows) left.push_back({reached, rows});
  return left;
}

}  // namespace ringside
