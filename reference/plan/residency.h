// Which buffer a rank holds when, and what an exchange puts in its place: the one place that knows.
//
// A rank keeps its buffer until a step's messages move that operand, or the step names another
// buffer. Between two exchanges of an operand nothing of it moves on any rank.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "reference/plan/plan.h"
#include "reference/rows/row_places.h"

namespace ringside {

// What rank holds of `operand` just before `step` (step = num_steps: at the end).
const Buffer& resident_before(const Plan& plan, int rank, int step, Operand operand);

// Whether the exchange before `step` gives the rank a new buffer of `operand`.
bool is_replaced(const Plan& plan, int rank, int step, Operand operand);
bool any_rank_moves(const Plan& plan, int step, Operand operand);

// Where messages that land by position go, in the exchange before `step`: many ranks receive the
// same rows into the same buffer, and each is looked for once.
class Landings {
 public:
  Landings(const Plan& plan, int step, Operand operand)
      : plan_(plan), step_(step), operand_(operand) {}

  // From rows of the sender's buffer to rows of the receiver's. Raises PlanError where a row has no
  // place.
  const std::vector<RowRun>& runs(int from, int to, const Message& sent);

 private:
  const Plan& plan_;
  int step_;
  Operand operand_;
  std::map<int, RowPlaces> places_;                                     // by shard
  std::map<std::tuple<int, int, int, int>, std::vector<RowRun>> runs_;  // by shards and rows
};

struct Transfer {  // both ends of one message, or of a run of its rows
  int from = 0, to = 0;
  Message sent, received;
  int step = 1;  // row i of what is sent is row i * step of what is received

  int landing_row(int i) const { return received.row + i * step; }
};

// The messages of a step that move `operand`, sends paired with receives; one that lands by
// position run by run. Raises PlanError where one has no partner, or a row no place.
std::vector<Transfer> transfers(const Plan& plan, int step, Operand operand);

// Raises InvalidArgument where the plan has the tiles of some ranks alone.
void require_all_tiles(const Plan& plan, const char* what);

std::vector<Shard> home_shards(const Plan& plan, Operand operand);

}  // namespace ringside
