// What a forward pass keeps is what the backward pass reads.
#include <algorithm>
#include <utility>

#include "reference/schedule/builder.h"
#include "reference/schedule/verify/verify_schedule.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

struct Write {
  int operation, buffer;
};

// A schedule by its areas.
struct ByArea {
  explicit ByArea(const Schedule& schedule) : writes(schedule.areas.size()) {
    for (int i = 0; i < static_cast<int>(schedule.areas.size()); ++i)
      if (schedule.areas[i].kept) kept.push_back(i);
    for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i)
      for (const Access& access : accesses(schedule, schedule.operations[i])) {
        const int area = schedule.buffers[access.block.buffer].area;
        if (access.writes && area != kCaller) writes[area].push_back({i, access.block.buffer});
      }
  }

  std::vector<int> kept;                   // areas
  std::vector<std::vector<Write>> writes;  // to each area, in the order of the list
};

class KeptOfRank {
 public:
  KeptOfRank(const Schedule& forward, const Schedule& backward)
      : forward_(forward), backward_(backward), written_(forward), read_(backward) {}

  void verify() const {
    verify_areas();
    for (const int area : read_.kept)
      plan_require(read_.writes[area].empty(), At{backward_.rank},
                   " writes to what the forward pass kept, in area ", area);
    for (const Operation& op : backward_.operations)
      if (op.kind == OperationKind::compute) verify_step(op);
  }

 private:
  At at(int step) const { return {.rank = forward_.rank, .step = step}; }

  void verify_areas() const {
    plan_require(written_.kept.size() == read_.kept.size(), At{forward_.rank}, " keeps ",
                 written_.kept.size(), " areas and reads ", read_.kept.size());
    for (size_t i = 0; i < read_.kept.size(); ++i) {
      const int64_t there = forward_.areas[written_.kept[i]].cells;
      const int64_t here = backward_.areas[read_.kept[i]].cells;
      plan_require(there == here, At{forward_.rank}, " keeps ", there, " cells in area ",
                   written_.kept[i], " and reads ", here);
    }
  }

  // The keys that the tiles of a step read forward, whole, are where those of backward look.
  void verify_step(const Operation& read) const {
    check_interrupt(static_cast<int64_t>(forward_.operations.size()));
    const auto place = std::ranges::find(read_.kept, backward_.buffers[read.keys].area);
    if (place == read_.kept.end()) return;
    const auto tiles = std::ranges::find_if(forward_.operations, [&](const Operation& op) {
      return op.kind == OperationKind::compute && op.step == read.step;
    });
    plan_require(tiles != forward_.operations.end(), at(read.step),
                 " reads kept keys of tiles that it never ran");
    const auto& writes = written_.writes[written_.kept[place - read_.kept.begin()]];
    plan_require(writes.size() == 1, at(read.step), " reads kept keys that were written ",
                 writes.size(), " times; expected once");
    verify_copy(writes[0].operation, tiles->keys, read);
  }

  void verify_copy(int index, int keys, const Operation& read) const {
    const Operation& copy = forward_.operations[index];
    const ScheduledBuffer& from = forward_.buffers[copy.from.buffer];
    const ScheduledBuffer& there = forward_.buffers[copy.to.buffer];
    const ScheduledBuffer& here = backward_.buffers[read.keys];
    const Block whole{copy.from.buffer, 0, from.rows, from.heads};
    plan_require(copy.kind == OperationKind::copy && copy.runs.empty() && copy.from == whole &&
                     copy.step == last_arrival(read.step) && copy.to.buffer == keys &&
                     copy.to.cells() == there.cells() && there.cell == here.cell &&
                     there.rows == here.rows && there.heads == here.heads,
                 at(read.step), " keeps other keys than its tiles read");
    for (const auto& [operation, buffer] : written_.writes[from.area])
      plan_require(buffer != copy.from.buffer || forward_.operations[operation].step == copy.step,
                   at(read.step), " keeps the keys of another step than its tiles read");
    verify_time(index, copy.from.buffer, read.step);
  }

  // The step before which the keys came that are resident in `step`.
  int last_arrival(int step) const {
    int last = -1;
    const auto note = [&](const Operation& op, int buffer) {
      const ScheduledBuffer& b = forward_.buffers[buffer];
      const bool comes = b.payload == Payload::keys && b.area != kCaller && !is_kept(b);
      if (comes && op.step <= step) last = std::max(last, op.step);
    };
    for (const Operation& op : forward_.operations) {
      for (const ScheduledMessage& m : op.receives) note(op, m.block.buffer);
      if (op.kind == OperationKind::copy) note(op, op.to.buffer);
    }
    return last;
  }
  bool is_kept(const ScheduledBuffer& buffer) const { return forward_.areas[buffer.area].kept; }

  // Streams keep their order, and what two of them touch is ordered by the list.
  void verify_time(int copy, int keys, int step) const {
    int last_before = -1;
    bool comes_after = false;
    for (const auto& [operation, buffer] : written_.writes[forward_.buffers[keys].area]) {
      if (operation < copy) last_before = buffer;
      comes_after |= operation > copy && buffer == keys;
    }
    plan_require(last_before == keys && !comes_after, at(step),
                 " keeps keys before they have come, or after others came");
  }

  const Schedule &forward_, &backward_;
  const ByArea written_, read_;
};

}  // namespace

void verify_kept(const std::vector<Schedule>& forward, const std::vector<Schedule>& backward) {
  plan_require(forward.size() == backward.size(), forward.size(), " schedules forward and ",
               backward.size(), " backward");
  for (size_t rank = 0; rank < forward.size(); ++rank)
    KeptOfRank(forward[rank], backward[rank]).verify();
}

}  // namespace ringside
