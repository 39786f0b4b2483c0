#include "optimized/tables/schedules/last_sum.h"

#include "optimized/tables/move_tables.h"

namespace ringside {
namespace {

// Whether the operation writes into the memory of a buffer.
bool writes(const Schedule& schedule, const Operation& op, const ScheduledBuffer& memory) {
  const auto overlaps = [&](int buffer) {
    if (buffer < 0) return false;
    const ScheduledBuffer& b = schedule.buffers[buffer];
    return b.area == memory.area && b.payload == memory.payload;
  };
  for (const ScheduledMessage& message : op.receives)
    if (overlaps(message.block.buffer)) return true;
  return overlaps(op.to.buffer) || overlaps(op.query_sums) || overlaps(op.key_sums);
}

bool reads(const Operation& op, int buffer) {
  for (const ScheduledMessage& message : op.sends)
    if (message.block.buffer == buffer) return true;
  return op.from.buffer == buffer;
}

bool is_of_all_heads(const Schedule& schedule, const Operation& op) {
  const Range& from = schedule.buffers[op.from.buffer].heads;
  const Range& to = schedule.buffers[op.to.buffer].heads;
  return from == to && op.from.heads == from && op.to.heads == to;
}

}  // namespace

LastSum last_sum(const Schedule& schedule) {
  const int home = schedule.home_key_sums;
  for (int i = static_cast<int>(schedule.operations.size()); i-- > 0;) {
    const Operation& op = schedule.operations[i];
    const bool adds = op.kind == OperationKind::combine && op.to.buffer == home;
    if (!adds && (writes(schedule, op, schedule.buffers[home]) || reads(op, home))) return {};
    if (!adds) continue;
    if (!is_of_all_heads(schedule, op)) return {};
    const ScheduledBuffer& memory = schedule.buffers[op.from.buffer];
    for (size_t j = static_cast<size_t>(i) + 1; j < schedule.operations.size(); ++j)
      if (writes(schedule, schedule.operations[j], memory)) return {};
    LastSum last{i,
                 std::vector<int32_t>(static_cast<size_t>(schedule.buffers[home].rows), kNobody)};
    for (const RowRun& run : op.row_runs())
      for (int row = 0; row < run.rows; ++row)
        last.from_of[run.to + row * run.to_step] = run.from + row * run.from_step;
    return last;
  }
  return {};
}

}  // namespace ringside
