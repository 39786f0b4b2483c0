#include "reference/plan/residency.h"

#include <map>
#include <tuple>
#include <utility>

#include "reference/support/errors.h"

namespace ringside {

const Buffer& resident_before(const Plan& plan, int rank, int step, Operand operand) {
  const bool is_q = operand == Operand::q;
  if (step == 0) return is_q ? plan.home_q[rank] : plan.home_kv[rank];
  const Step& previous = plan.steps_of_rank[rank][step - 1];
  return is_q ? previous.q : previous.kv;
}

bool is_replaced(const Plan& plan, int rank, int step, Operand operand) {
  return plan.steps_of_rank[rank][step].before.moves(operand) ||
         !(resident_before(plan, rank, step, operand) ==
           resident_before(plan, rank, step + 1, operand));
}

bool any_rank_moves(const Plan& plan, int step, Operand operand) {
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (is_replaced(plan, rank, step, operand)) return true;
  return false;
}

const std::vector<RowRun>& Landings::runs(int from, int to, const Message& sent) {
  const int before = resident_before(plan_, from, step_, operand_).shard;
  const int after = resident_before(plan_, to, step_ + 1, operand_).shard;
  const auto [known, is_new] =
      runs_.try_emplace(std::tuple(before, sent.row, sent.rows, after), std::vector<RowRun>{});
  if (!is_new) return known->second;
  const auto place = places_.try_emplace(after, plan_.shards[after]).first;
  known->second = place->second.runs(plan_.shards[before], {sent.row, sent.row_end()});
  plan_require(rows_of(known->second) == sent.rows, At{to, step_}, " receives ", sent.rows,
               " rows of rank ", from, " by position, and its buffer has places for ",
               rows_of(known->second), ". plan.verify() tells more");
  return known->second;
}

namespace {

// A message whole, or run by run.
void add_transfers(const Transfer& whole, Landings& landings, std::vector<Transfer>& all) {
  if (!whole.received.lands_by_position()) return all.push_back(whole);
  for (const RowRun& run : landings.runs(whole.from, whole.to, whole.sent)) {
    Transfer part = whole;
    part.sent.row = run.from, part.received.row = run.to, part.step = run.to_step;
    part.sent.rows = part.received.rows = run.rows;
    all.push_back(part);
  }
}

}  // namespace

std::vector<Transfer> transfers(const Plan& plan, int step, Operand operand) {
  std::map<std::pair<int, int>, std::vector<Message>> sent;  // by (from, to), in order
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    for (const Message& m : plan.steps_of_rank[rank][step].before.sends)
      if (m.operand == operand) sent[{rank, m.peer}].push_back(m);
  std::map<std::pair<int, int>, size_t> met;
  Landings landings(plan, step, operand);
  std::vector<Transfer> paired;
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    for (const Message& m : plan.steps_of_rank[rank][step].before.receives) {
      if (m.operand != operand) continue;
      const auto& candidates = sent[{m.peer, rank}];
      const size_t i = met[{m.peer, rank}]++;
      plan_require(i < candidates.size(), At{rank, step}, " receives from ", m.peer,
                   ", which sends nothing that fits. plan.verify() tells more");
      add_transfers({m.peer, rank, candidates[i], m}, landings, paired);
    }
  return paired;
}

void require_all_tiles(const Plan& plan, const char* what) {
  require(plan.held.empty(), what, " needs the tiles of all ", plan.cp_size(),
          " ranks; the plan has those of ", plan.held.size(), ". Build it with build_plan()");
}

std::vector<Shard> home_shards(const Plan& plan, Operand operand) {
  std::vector<Shard> shards;
  for (const Buffer& home : operand == Operand::q ? plan.home_q : plan.home_kv)
    shards.push_back(plan.shard(home));
  return shards;
}

}  // namespace ringside
