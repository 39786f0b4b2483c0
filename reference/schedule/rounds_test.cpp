// Processes that host any ranks, their schedules walked act by act: all of them post the same
// rounds in the same order, and what they compute is what every rank alone computes.
#include "reference/schedule/rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>

#include "reference/execute/carry.h"
#include "reference/execute/execute.h"
#include "reference/schedule/run/run_schedule.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

std::vector<std::vector<int>> random_hosts(Random& random, int cp_size) {
  std::vector<std::vector<int>> processes(random.integer(1, cp_size));
  for (int rank = 0; rank < cp_size; ++rank)
    processes[random.integer(0, static_cast<int>(processes.size()) - 1)].push_back(rank);
  std::erase_if(processes, [](const auto& ranks) { return ranks.empty(); });
  return processes;
}

TEST(Rounds, RiseAlongEveryListAndHoldBothEndsOfAMessage) {
  Random random(61);
  for (int i = 0; i < 60; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      // By round and ranks: cells that are sent, and received.
      std::map<std::array<int, 3>, std::array<std::vector<int64_t>, 2>> ends;
      for (const Schedule& s : make_schedules(plan, pass)) {
        int last = -1;
        for (const Operation& op : s.operations) {
          if (op.kind != OperationKind::exchange) continue;
          const int round = round_of(s, op, plan.num_steps());
          ASSERT_GT(round, last);
          ASSERT_LT(round, num_rounds(pass, plan.num_steps()));
          last = round;
          for (const auto& [to, block] : op.sends)
            ends[{round, s.rank, to}][0].push_back(block.cells());
          for (const auto& [from, block] : op.receives)
            ends[{round, from, s.rank}][1].push_back(block.cells());
        }
      }
      for (const auto& [key, cells] : ends) ASSERT_EQ(cells[0], cells[1]);
    }
  }
}

// Processes in one thread, each at its next act: a round is done once every process that has a part
// in it has come to it.
class Processes {
 public:
  Processes(const Plan& plan, const std::vector<Schedule>& schedules, std::vector<RankRun>& runs,
            const std::vector<std::vector<int>>& hosts)
      : schedules_(schedules), runs_(runs), hosts_(hosts) {
    for (const auto& ranks : hosts) {
      std::vector<Schedule> hosted;
      for (const int rank : ranks) hosted.push_back(schedules[rank]);
      acts_.push_back(acts_of(hosted, plan.num_steps()));
      hosted_.push_back(std::move(hosted));
    }
  }

  void run() {
    std::vector<size_t> next(hosts_.size(), 0);
    for (;;) {
      int round = INT_MAX;
      for (size_t p = 0; p < hosts_.size(); ++p) {
        for (; next[p] < acts_[p].size() && acts_[p][next[p]].round < 0; ++next[p])
          for (const Turn& turn : acts_[p][next[p]].turns)
            runs_[rank(p, turn)].run(operation(p, turn));
        if (next[p] < acts_[p].size()) round = std::min(round, acts_[p][next[p]].round);
      }
      if (round == INT_MAX) return;
      sent_.clear();
      std::vector<size_t> here;
      for (size_t p = 0; p < hosts_.size(); ++p)
        if (next[p] < acts_[p].size() && acts_[p][next[p]].round == round) here.push_back(p);
      for (const size_t p : here) send(p, acts_[p][next[p]]);
      for (const size_t p : here) receive(p, acts_[p][next[p]++]);
    }
  }

 private:
  int rank(size_t process, const Turn& turn) const { return hosts_[process][turn.member]; }
  const Operation& operation(size_t process, const Turn& turn) const {
    return schedules_[rank(process, turn)].operations[turn.operation];
  }
  bool hosts(size_t process, int rank) const {
    return std::ranges::count(hosts_[process], rank) > 0;
  }

  void send(size_t process, const Act& act) {
    for (const LocalMessage& m : local_messages(hosted_[process], act))
      copies_.push_back(
          {rank(process, m.to), m.received, runs_[rank(process, m.from)].packed(m.sent)});
    for (const Turn& turn : act.turns)
      for (const auto& [to, block] : operation(process, turn).sends)
        if (!hosts(process, to))
          sent_[{rank(process, turn), to}].push_back(runs_[rank(process, turn)].packed(block));
  }

  void receive(size_t process, const Act& act) {
    for (const auto& [to, block, data] : copies_) runs_[to].unpack(block, data);
    copies_.clear();
    for (const Turn& turn : act.turns)
      for (const auto& [from, block] : operation(process, turn).receives)
        if (!hosts(process, from)) {
          auto& queue = sent_[{from, rank(process, turn)}];
          ASSERT_FALSE(queue.empty());
          runs_[rank(process, turn)].unpack(block, queue.front());
          queue.erase(queue.begin());
        }
  }

  struct Copy {
    int rank;
    Block block;
    std::vector<double> data;
  };
  const std::vector<Schedule>& schedules_;
  std::vector<RankRun>& runs_;
  const std::vector<std::vector<int>>& hosts_;
  std::vector<std::vector<Schedule>> hosted_;
  std::vector<std::vector<Act>> acts_;
  std::map<std::pair<int, int>, std::vector<std::vector<double>>> sent_;
  std::vector<Copy> copies_;
};

TEST(Rounds, ProcessesThatHostAnyRanksComputeWhatAllRanksDo) {
  Random random(67);
  for (int i = 0; i < 30; ++i) {
    const testing::RandomCase c(random, testing::random_problem(random));
    const Plan plan = testing::random_plan(random, c.problem);
    AttentionOptions options = c.options;
    options.sinks.clear();  // merged by whoever walks a schedule, not by an operation
    const auto hosts = random_hosts(random, plan.cp_size());
    const auto schedules = make_schedules(plan, Pass::forward);
    const auto q = shard(plan.problem.layout_q, home_shards(plan, Operand::q), c.q);
    const auto k = shard(plan.problem.layout_k, home_shards(plan, Operand::kv), c.k);
    const auto v = shard(plan.problem.layout_k, home_shards(plan, Operand::kv), c.v);
    std::vector<RankRun> runs;
    for (int rank = 0; rank < plan.cp_size(); ++rank)
      runs.emplace_back(plan, schedules[rank], options, std::vector<TensorView>{q[rank]},
                        std::vector<TensorView>{k[rank], v[rank]});
    Processes(plan, schedules, runs, hosts).run();
    AttentionInputs inputs = c.inputs();
    inputs.options = options;
    const AttentionOutput want = attention(plan, inputs);
    PerRank out;
    for (int rank = 0; rank < plan.cp_size(); ++rank)
      out.push_back(runs[rank].arrays(schedules[rank].home_query_sums)[0]);
    const Tensor got = unshard(plan.problem.layout_q, home_shards(plan, Operand::q), out);
    ASSERT_EQ(want.out.data.size(), got.data.size());
    for (size_t at = 0; at < got.data.size(); ++at)
      ASSERT_TRUE(want.out.data[at] == got.data[at] || got.data[at] != got.data[at]) << at;
  }
}

}  // namespace
}  // namespace ringside
