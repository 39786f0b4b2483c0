#include "optimized/tables/schedules/process_pass.h"

#include <algorithm>
#include <list>
#include <map>
#include <tuple>
#include <utility>

#include "reference/support/errors.h"

namespace ringside {
namespace {

// One end of the n-th message between two ranks in a round.
using Key = std::tuple<int, int, int, int>;  // round, from, to, n
using Ends = std::map<Key, Block>;

struct EndsOfRank {
  Ends sent, received;
};

EndsOfRank ends_of(const Schedule& schedule, int num_steps) {
  EndsOfRank ends;
  for (const Operation& op : schedule.operations) {
    if (op.kind != OperationKind::exchange) continue;
    const int round = round_of(schedule, op, num_steps);
    std::map<int, int> sent, received;  // so far, by peer
    for (const auto& [to, block] : op.sends)
      ends.sent[{round, schedule.rank, to, sent[to]++}] = block;
    for (const auto& [from, block] : op.receives)
      ends.received[{round, from, schedule.rank, received[from]++}] = block;
  }
  return ends;
}

// Areas of the ranks of a process lie one behind the other.
std::vector<RankMemory> place_ranks(const std::vector<Schedule>& schedules, const CellSizes& sizes,
                                    int64_t begin) {
  std::vector<RankMemory> memory;
  for (const Schedule& schedule : schedules)
    memory.push_back(place_areas(schedule, sizes, memory.empty() ? begin : memory.back().end));
  return memory;
}

std::vector<Schedule> schedules_of(const std::vector<Schedule>& all,
                                   const std::vector<int>& ranks) {
  std::vector<Schedule> some;
  for (const int rank : ranks) some.push_back(all.at(rank));
  return some;
}

}  // namespace

// Turns the ends of messages into parcels, round by round.
class ProcessPass::Rounds {
 public:
  Rounds(ProcessPass& pass, const std::vector<Schedule>& all, const Hosting& hosting, int num_steps)
      : pass_(pass), hosting_(hosting) {
    for (size_t i = 0; i < pass.acts_.size(); ++i)
      if (pass.acts_[i].round >= 0) act_of_round_[pass.acts_[i].round] = i;
    for (size_t p = 0; p < hosting.processes.size(); ++p)
      add_process(static_cast<int>(p), schedules_of(all, hosting.processes[p]), num_steps);
  }

  void make() {
    for (const Act& act : pass_.acts_) {
      auto& round = pass_.rounds_.emplace_back();
      if (act.round < 0) continue;
      for (const LocalMessage& m : local_messages(pass_.hosted_, act))
        round.copies.push_back({m.from.member, m.to.member, m.sent, m.received});
    }
    for (size_t member = 0; member < pass_.hosted_.size(); ++member)
      ranks_.push_back(pass_.hosted_[member].rank);
    for (const auto& [key, block] : sent_) add_sent(key, block);
    for (const auto& [key, block] : received_) add_received(key, block);
  }

 private:
  struct Remote {
    const Schedule* schedule;
    RankMemory memory;
  };

  void add_process(int process, std::vector<Schedule> schedules, int num_steps) {
    std::vector<RankMemory> memory =
        place_ranks(schedules, pass_.sizes_, pass_.choices_.header_bytes);
    auto& kept = kept_.emplace_back(std::move(schedules));
    for (size_t i = 0; i < kept.size(); ++i) {
      const EndsOfRank ends = ends_of(kept[i], num_steps);
      if (process == hosting_.mine) {
        sent_.insert(ends.sent.begin(), ends.sent.end());
        received_.insert(ends.received.begin(), ends.received.end());
      }
      landing_.insert(ends.received.begin(), ends.received.end());
      remote_[kept[i].rank] = {&kept[i], std::move(memory[i])};
    }
  }

  int member_of(int rank) const {
    const auto found = std::ranges::find(ranks_, rank);
    return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
  }
  int arrays_of(const Schedule& schedule, const Block& block) const {
    return static_cast<int>(pass_.sizes_.of(schedule.buffers[block.buffer].payload).size());
  }
  RoundOfProcess& round(const Key& key) {
    return pass_.rounds_[act_of_round_.at(std::get<0>(key))];
  }

  void add_sent(const Key& key, const Block& block) {
    const auto [number, from, to, n] = key;
    if (member_of(to) >= 0 || block.cells() == 0) return;
    const auto landing = landing_.find(key);
    plan_require(landing != landing_.end() && landing->second.cells() == block.cells(), At{from},
                 " sends rank ", to, " what that does not receive. plan.verify() tells more");
    const int member = member_of(from);
    const auto& [schedule, memory] = remote_.at(to);
    for (int array = 0; array < arrays_of(pass_.hosted_[member], block); ++array)
      round(key).sends.push_back(
          {member, array, block, pass_.rows(member, block, array), hosting_.process_of(to),
           rows_of(*schedule, memory, pass_.sizes_, landing->second, array)});
  }

  void add_received(const Key& key, const Block& block) {
    const auto [number, from, to, n] = key;
    if (member_of(from) >= 0 || block.cells() == 0) return;
    const int member = member_of(to);
    for (int array = 0; array < arrays_of(pass_.hosted_[member], block); ++array)
      round(key).receives.push_back(
          {member, array, block, pass_.rows(member, block, array), hosting_.process_of(from), {}});
  }

  ProcessPass& pass_;
  const Hosting& hosting_;
  std::map<int, size_t> act_of_round_;
  std::vector<int> ranks_;                 // of members
  std::list<std::vector<Schedule>> kept_;  // of all processes
  std::map<int, Remote> remote_;           // by rank
  Ends sent_, received_, landing_;         // of this process; of all
};

ProcessPass::ProcessPass(const Plan& plan, const Hosting& hosting, Pass pass,
                         const CellSizes& sizes, const PassChoices& choices)
    : sizes_(sizes), choices_(choices) {
  const std::vector<Schedule> all = make_schedules(plan, pass, choices.keep);
  hosted_ = schedules_of(all, hosting.hosted());
  memory_ = place_ranks(hosted_, sizes_, choices_.header_bytes);
  bytes_ = memory_.empty() ? 0 : memory_.back().end;
  acts_ = acts_of(hosted_, plan.num_steps());
  Rounds(*this, all, hosting, plan.num_steps()).make();
}

ProcessPass::ProcessPass(Schedule alone, const CellSizes& sizes) : sizes_(sizes) {
  hosted_.push_back(std::move(alone));
  memory_ = place_ranks(hosted_, sizes_, 0);
  bytes_ = memory_[0].end;
  acts_ = acts_of(hosted_, 0);
  rounds_.resize(acts_.size());
}

int64_t ProcessPass::staging_bytes() const {
  int64_t most = 0;
  for (const RoundOfProcess& round : rounds_) {
    int64_t bytes = 0;
    for (const auto* parcels : {&round.sends, &round.receives})
      for (const Parcel& parcel : *parcels)
        if (!parcel.here.dense()) bytes += (parcel.here.bytes() + 255) / 256 * 256;
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace ringside
