// Proves a plan right without running it.
//
//   ownership   each row of q and of k is owned by exactly one rank
//   messages    every send meets its receive, in an order that cannot deadlock, inside the buffers
//   contents    the rows each buffer claims to hold are the rows that really arrive
//   tiles       tiles read the resident rows they name, and each sees something
//   coverage    every visible (query, key) pair of every head is computed exactly once
//   pools       no tile list is left over
//
// Raises PlanError with the first offending row, message or tile.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "reference/plan/plan.h"

namespace ringside {

struct PlanProof {  // what was checked
  int64_t rows = 0, messages = 0, tiles = 0;
  int64_t pairs = 0;       // visible pairs of one head
  int64_t operations = 0;  // of the schedules of both passes, where those were proved, too
};

PlanProof verify(const Plan& plan);

// The parts, in order; each trusts the ones before it.
void verify_indices(const Plan& plan);       // the problem, pools, heads, step counts
int64_t verify_exchanges(const Plan& plan);  // messages and contents
void verify_kinds(const Plan& plan);  // exchanges are called what they are, by all ranks alike
int64_t verify_tiles(const Plan& plan);
int64_t verify_coverage(const Plan& plan);
void verify_pools(const Plan& plan);

// The global row (of its layout) that each row of a shard holds.
std::vector<int> global_rows(const PackedLayout& layout, const Shard& shard);

}  // namespace ringside
