#include "reference/schedule/builder.h"

#include <algorithm>
#include <utility>

#include "reference/support/interrupt.h"

namespace ringside {
namespace {

bool meet(int begin_a, int end_a, int begin_b, int end_b) {
  return begin_a < end_b && begin_b < end_a;
}

}  // namespace

std::vector<Access> accesses(const Schedule& schedule, const Operation& operation) {
  std::vector<Access> touched;
  const auto whole = [&](int buffer, bool writes) {
    if (buffer < 0) return;
    const ScheduledBuffer& b = schedule.buffers[buffer];
    touched.push_back({{buffer, 0, b.rows, b.heads}, writes});
  };
  for (const ScheduledMessage& m : operation.sends) touched.push_back({m.block, false});
  for (const ScheduledMessage& m : operation.receives) touched.push_back({m.block, true});
  if (operation.from.buffer >= 0) touched.push_back({operation.from, false});
  if (operation.to.buffer >= 0) touched.push_back({operation.to, true});
  whole(operation.queries, false);
  whole(operation.keys, false);
  whole(operation.query_sums, true);
  whole(operation.key_sums, true);
  return touched;
}

bool overlap(const Schedule& schedule, const Block& a, const Block& b) {
  const ScheduledBuffer &x = schedule.buffers[a.buffer], &y = schedule.buffers[b.buffer];
  if (a.buffer == b.buffer)
    return meet(a.row, a.row + a.rows, b.row, b.row + b.rows) &&
           meet(a.heads.begin, a.heads.end, b.heads.begin, b.heads.end);
  if (x.area == kCaller || x.area != y.area) return false;
  return x.cell < y.cell + y.cells() && y.cell < x.cell + x.cells();
}

int ScheduleBuilder::add_area(Payload payload) {
  schedule_.areas.push_back({payload, 0});
  return static_cast<int>(schedule_.areas.size()) - 1;
}

int ScheduleBuilder::add_kept_area(Payload payload) {
  const int area = add_area(payload);
  schedule_.areas[area].kept = true;
  return area;
}

int ScheduleBuilder::add_buffer(Payload payload, int rows, Range heads, int area, int64_t cell) {
  schedule_.buffers.push_back({payload, rows, heads, area, cell});
  const ScheduledBuffer& buffer = schedule_.buffers.back();
  if (area != kCaller) {
    int64_t& cells = schedule_.areas[area].cells;
    cells = std::max(cells, cell + buffer.cells());
  }
  return static_cast<int>(schedule_.buffers.size()) - 1;
}

Block ScheduleBuilder::whole(int buffer) const {
  const ScheduledBuffer& b = schedule_.buffers[buffer];
  return {buffer, 0, b.rows, b.heads};
}

void ScheduleBuilder::clear(int step, int buffer) {
  Operation op{.kind = OperationKind::clear, .step = step};
  op.to = whole(buffer);
  if (op.to.cells() > 0) add(std::move(op));
}

void ScheduleBuilder::exchange(int step, std::vector<ScheduledMessage> sends,
                               std::vector<ScheduledMessage> receives) {
  if (sends.empty() && receives.empty()) return;
  Operation op{.kind = OperationKind::exchange, .stream = Stream::exchange, .step = step};
  op.sends = std::move(sends);
  op.receives = std::move(receives);
  add(std::move(op));
}

void ScheduleBuilder::copy(int step, const BlockMove& move) {
  Operation op{.kind = OperationKind::copy, .step = step};
  op.from = move.from, op.to = move.to, op.runs = move.runs;
  add(std::move(op));
}

void ScheduleBuilder::combine(int step, const BlockMove& move) {
  Operation op{.kind = OperationKind::combine, .step = step};
  op.from = move.from, op.to = move.to, op.runs = move.runs;
  add(std::move(op));
}

void ScheduleBuilder::compute(Operation operation) {
  operation.kind = OperationKind::compute;
  add(std::move(operation));
}

// An operation waits for the last one of the other stream that it must not overtake; the order of
// that stream does the rest.
void ScheduleBuilder::add(Operation operation) {
  const auto& operations = schedule_.operations;
  touches_of_area_.resize(schedule_.areas.size());
  const int index = static_cast<int>(operations.size());
  const auto touched = accesses(schedule_, operation);
  int last = -1;
  for (const Access& mine : touched) {
    if (schedule_.buffers[mine.block.buffer].area == kCaller) continue;  // nobody writes these
    const auto& touches = touches_of_area_[schedule_.buffers[mine.block.buffer].area];
    for (size_t i = touches.size(); i-- > 0 && touches[i].operation > last;) {
      const auto& [other, theirs] = touches[i];
      check_interrupt(4);
      if ((mine.writes || theirs.writes) && operations[other].stream != operation.stream &&
          overlap(schedule_, mine.block, theirs.block))
        last = other;
    }
  }
  int& seen = seen_[static_cast<int>(operation.stream)];
  if (last > seen) operation.after.push_back(seen = last);
  schedule_.operations.push_back(std::move(operation));
  for (const Access& mine : touched)
    if (const int area = schedule_.buffers[mine.block.buffer].area; area != kCaller)
      touches_of_area_[area].push_back({index, mine});
}

}  // namespace ringside
