// Proves the schedules of all ranks of a pass right without running them.
//
//   shape       operations name buffers, blocks and areas that exist; waits point backwards
//   steps       the tiles of every step are computed once, on buffers of the plan's shape
//   sums        what a rank summed for others, and what arrived from them, goes on exactly once
//   ends        the n-th send between two ranks and the n-th receive carry the same cells of the
//               same payload
//   deadlock    all groups of messages complete, though none is buffered
//   races       whatever two operations both touch, and one writes, is ordered by streams and waits
//   memory      areas hold their buffers, and are no larger
//   kept        the keys and values that backward reads are those that forward's tiles read, whole
//
// Raises PlanError with the first offending rank and operation.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/schedule/schedule.h"
#include "reference/verify/verify.h"

namespace ringside {

struct ScheduleProof {  // what was checked, of one pass
  int64_t operations = 0, messages = 0, ordered_pairs = 0;
};

ScheduleProof verify_schedules(const Plan& plan, const std::vector<Schedule>& schedules);

// verify() of the plan, then of its schedules, both passes, with keys fetched anew and kept.
PlanProof verify_all(const Plan& plan);

// The parts, in order; each trusts the ones before it.
void verify_shape(const Plan& plan, const Schedule& schedule);
void verify_steps(const Plan& plan, const Schedule& schedule);
void verify_sums(const Schedule& schedule);
int64_t verify_ends(const std::vector<Schedule>& schedules);
void verify_progress(const std::vector<Schedule>& schedules);
int64_t verify_races(const Schedule& schedule);
// Of schedules that keep keys and values; alike of those that do not, which have nothing of it.
void verify_kept(const std::vector<Schedule>& forward, const std::vector<Schedule>& backward);

}  // namespace ringside
