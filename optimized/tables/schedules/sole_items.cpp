#include "optimized/tables/schedules/sole_items.h"

#include <algorithm>
#include <cstdint>

namespace ringside {
namespace {

// Of some sums, how often each row is written in a pass.
class RowWriters {
 public:
  explicit RowWriters(int rows) : writers_(static_cast<size_t>(rows)) {}

  void add(const WorkItem& item) { add(item.own.row + item.begin, item.end - item.begin); }
  void add(int row, int rows) {
    for (int i = row; i < row + rows; ++i) ++writers_[i];
  }
  void add(const Operation& op, int buffer) {
    if (op.kind == OperationKind::copy || op.kind == OperationKind::combine)
      if (op.to.buffer == buffer)
        for (const RowRun& run : op.row_runs())
          for (int i = 0; i < run.rows; ++i) add(run.to + i * run.to_step, 1);
    for (const ScheduledMessage& message : op.receives)
      if (message.block.buffer == buffer) add(message.block.row, message.block.rows);
  }

  bool is_sole(const WorkItem& item) const {
    const auto first = writers_.begin() + item.own.row;
    return std::all_of(first + item.begin, first + item.end, [](int n) { return n == 1; });
  }

 private:
  std::vector<int32_t> writers_;
};

}  // namespace

SoleItems sole_items(const Schedule& schedule, const std::vector<HostWorkList>& lists) {
  const int home = schedule.home_item_sums(), rows = schedule.buffers[home].rows;
  RowWriters writers(rows);
  for (const HostWorkList& list : lists)
    for (const WorkItem& item : list.items) writers.add(item);
  for (const Operation& op : schedule.operations) writers.add(op, home);

  SoleItems found;
  found.row_is_sole.resize(static_cast<size_t>(rows));
  for (const HostWorkList& list : lists) {
    SplitItems& split = found.of_operation.emplace_back();
    for (const WorkItem& item : list.items) {
      if (!writers.is_sole(item)) {
        split.others.push_back(item);
        continue;
      }
      split.sole.push_back(item);
      for (int i = item.begin; i < item.end; ++i) found.row_is_sole[item.own.row + i] = true;
      found.rows += item.end - item.begin;
    }
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
