#include "reference/schedule/rounds.h"

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

#include "reference/support/errors.h"

namespace ringside {
namespace {

Payload payload_of(const Schedule& schedule, const Operation& exchange) {
  const auto& messages = exchange.sends.empty() ? exchange.receives : exchange.sends;
  return schedule.buffers[messages.at(0).block.buffer].payload;
}

class Acts {
 public:
  Acts(const std::vector<Schedule>& hosted, int num_steps)
      : hosted_(hosted), num_steps_(num_steps), next_(hosted.size(), 0) {}

  std::vector<Act> make() {
    do
      for (int member = 0; member < static_cast<int>(hosted_.size()); ++member) go_on(member);
    while (post());
    return std::move(acts_);
  }

 private:
  const std::vector<Operation>& list(int member) const { return hosted_[member].operations; }
  bool has_ended(int member) const {
    return next_[member] == static_cast<int>(list(member).size());
  }

  void go_on(int member) {  // up to its next exchange
    for (; !has_ended(member); ++next_[member]) {
      if (list(member)[next_[member]].kind == OperationKind::exchange) return;
      acts_.push_back({-1, {{member, next_[member]}}});
    }
  }

  int next_round(int member) const {
    return has_ended(member) ? INT_MAX
                             : round_of(hosted_[member], list(member)[next_[member]], num_steps_);
  }

  bool post() {  // the first round that any is at; whether there was one
    Act act{INT_MAX, {}};
    for (int member = 0; member < static_cast<int>(hosted_.size()); ++member)
      act.round = std::min(act.round, next_round(member));
    if (act.round == INT_MAX) return false;
    for (int member = 0; member < static_cast<int>(hosted_.size()); ++member)
      if (next_round(member) == act.round) act.turns.push_back({member, next_[member]++});
    acts_.push_back(std::move(act));
    return true;
  }

  const std::vector<Schedule>& hosted_;
  int num_steps_;
  std::vector<int> next_;
  std::vector<Act> acts_;
};

}  // namespace

// Forward, operands come in the order of steps and results go back. Backward, queries come first;
// then step by step from the last, keys one step ahead, and gradients leave after their tiles.
int round_of(const Schedule& schedule, const Operation& exchange, int num_steps) {
  const int step = exchange.step, from_last = num_steps - 1 - step;
  const Payload payload = payload_of(schedule, exchange);
  if (schedule.pass == Pass::forward)
    return payload == Payload::results ? num_steps + from_last : step;
  if (payload == Payload::queries) return step;
  return num_steps + 2 * from_last + (payload == Payload::keys ? 0 : 3);
}

int num_rounds(Pass pass, int num_steps) {
  return pass == Pass::forward ? 2 * num_steps : 3 * num_steps + 2;
}

std::vector<Act> acts_of(const std::vector<Schedule>& hosted, int num_steps) {
  return Acts(hosted, num_steps).make();
}

std::vector<LocalMessage> local_messages(const std::vector<Schedule>& hosted, const Act& act) {
  std::map<std::pair<int, int>, std::vector<std::pair<Turn, Block>>> sent;  // by ranks
  for (const Turn& turn : act.turns)
    for (const auto& [peer, block] : hosted[turn.member].operations[turn.operation].sends)
      sent[{hosted[turn.member].rank, peer}].emplace_back(turn, block);
  std::map<std::pair<int, int>, size_t> met;
  std::vector<LocalMessage> all;
  for (const Turn& turn : act.turns) {
    const Schedule& schedule = hosted[turn.member];
    for (const auto& [peer, block] : schedule.operations[turn.operation].receives) {
      if (std::ranges::none_of(hosted, [&](const Schedule& s) { return s.rank == peer; })) continue;
      const auto& from = sent[{peer, schedule.rank}];
      const size_t i = met[{peer, schedule.rank}]++;
      plan_require(i < from.size(), At{schedule.rank}, " receives from ", peer,
                   ", which sends nothing that fits. plan.verify() tells more");
      all.push_back({from[i].first, turn, from[i].second, block});
    }
  }
  return all;
}

}  // namespace ringside
