// Builds a schedule operation by operation. The order of the calls says what each operation reads
// and writes; which operations of the other stream it must wait for follows from that.
#pragma once

#include <vector>

#include "reference/schedule/schedule.h"

namespace ringside {

// The memory that an operation touches.
struct Access {
  Block block;
  bool writes = false;
};
std::vector<Access> accesses(const Schedule& schedule, const Operation& operation);

// Whether two blocks may share memory. Buffers that use one area at different times do, whole.
bool overlap(const Schedule& schedule, const Block& a, const Block& b);

struct BlockMove {  // see Operation
  Block from, to;
  std::vector<RowRun> runs{};
};

class ScheduleBuilder {
 public:
  ScheduleBuilder(Pass pass, int rank) { schedule_.pass = pass, schedule_.rank = rank; }

  int add_area(Payload payload);
  int add_kept_area(Payload payload);
  // Returns the buffer. In an area of the workspace it begins at `cell`.
  int add_buffer(Payload payload, int rows, Range heads, int area, int64_t cell = 0);
  Block whole(int buffer) const;

  void clear(int step, int buffer);
  void exchange(int step, std::vector<ScheduledMessage> sends,
                std::vector<ScheduledMessage> receives);
  void copy(int step, const BlockMove& move);
  void combine(int step, const BlockMove& move);
  void compute(Operation operation);  // but for its kind and what it waits for

  Schedule& schedule() { return schedule_; }

 private:
  void add(Operation operation);

  Schedule schedule_;
  int seen_[2] = {-1, -1};  // by each stream: the last operation of the other that it waited for
  struct Touch {
    int operation;
    Access access;
  };
  std::vector<std::vector<Touch>> touches_of_area_;
};

}  // namespace ringside
