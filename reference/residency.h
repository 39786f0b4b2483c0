// Which buffer a rank holds when, and what an exchange puts in its place: the one place that knows.
//
// A rank keeps its buffer until a step's messages move that operand, or the step names another
// buffer. Between two exchanges of an operand nothing of it moves on any rank.
#pragma once

#include <vector>

#include "reference/plan.h"

namespace ringside {

// What rank holds of `operand` just before `step` (step = num_steps: at the end).
const Buffer& resident_before(const Plan& plan, int rank, int step, Operand operand);

// Whether the exchange before `step` gives the rank a new buffer of `operand`.
bool is_replaced(const Plan& plan, int rank, int step, Operand operand);
bool any_rank_moves(const Plan& plan, int step, Operand operand);

struct Transfer {  // both ends of one message
  int from = 0, to = 0;
  Message sent, received;
};

// The messages of a step that move `operand`, sends paired with receives; raises PlanError when one
// has no partner.
std::vector<Transfer> transfers(const Plan& plan, int step, Operand operand);

// Raises InvalidArgument where the plan has the tiles of some ranks alone.
void require_all_tiles(const Plan& plan, const char* what);

std::vector<Shard> home_shards(const Plan& plan, Operand operand);

}  // namespace ringside
