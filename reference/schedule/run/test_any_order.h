// Runs the schedules of all ranks in one thread, in an order drawn at random from all that streams,
// waits and messages allow. A message is copied at any time after both its ends have been posted:
// whoever writes what is still being read, or reads too early, gets another result.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "reference/schedule/run/run_schedule.h"
#include "reference/test_support/test_random_case.h"

namespace ringside::testing {

class AnyOrder {
 public:
  AnyOrder(const std::vector<Schedule>& schedules, std::vector<RankRun>& runs, Random& random)
      : schedules_(schedules), runs_(runs), random_(random) {
    for (const Schedule& s : schedules) {
      Rank& rank = ranks_.emplace_back();
      rank.messages_left.resize(s.operations.size());
      rank.ended.resize(s.operations.size(), false);
      for (int i = 0; i < static_cast<int>(s.operations.size()); ++i)
        rank.operations[static_cast<int>(s.operations[i].stream)].push_back(i);
    }
  }

  // Whether all operations ended.
  bool run() {
    int idle = 0;
    while (idle < 20000) idle = act() ? 0 : idle + 1;  // what can act is drawn sooner
    for (const Rank& rank : ranks_)
      for (const bool ended : rank.ended)
        if (!ended) return false;
    return true;
  }

 private:
  struct Rank {
    std::vector<int> operations[2], messages_left;
    size_t next[2] = {0, 0};
    std::vector<bool> ended;
    bool posted = false;
  };
  struct End {
    int rank, operation;
    Block block;
  };
  struct Channel {
    std::vector<End> sends, receives;
    size_t moved = 0;
  };

  bool act() {
    if (!channels_.empty() && random_.coin()) {
      auto it = channels_.begin();
      std::advance(it, random_.integer(0, static_cast<int>(channels_.size()) - 1));
      return move(it->second);
    }
    return advance(random_.integer(0, static_cast<int>(ranks_.size()) - 1), random_.integer(0, 1));
  }

  bool move(Channel& c) {
    if (c.moved == c.sends.size() || c.moved == c.receives.size()) return false;
    const End &from = c.sends[c.moved], &to = c.receives[c.moved];
    runs_[to.rank].unpack(to.block, runs_[from.rank].packed(from.block));
    ++c.moved;
    --ranks_[from.rank].messages_left[from.operation];
    --ranks_[to.rank].messages_left[to.operation];
    return true;
  }

  bool advance(int index, int stream) {
    Rank& rank = ranks_[index];
    if (rank.next[stream] == rank.operations[stream].size()) return false;
    const int i = rank.operations[stream][rank.next[stream]];
    const Operation& op = schedules_[index].operations[i];
    for (const int before : op.after)
      if (!rank.ended[before]) return false;
    if (op.kind == OperationKind::exchange) {
      if (!rank.posted) return post(index, i);
      if (rank.messages_left[i] > 0) return false;
      rank.posted = false;
    } else {
      runs_[index].run(op);
    }
    rank.ended[i] = true;
    ++rank.next[stream];
    return true;
  }

  bool post(int index, int i) {
    const Schedule& s = schedules_[index];
    const auto payload = [&](const ScheduledMessage& m) {
      return s.buffers[m.block.buffer].payload;
    };
    for (const ScheduledMessage& m : s.operations[i].sends)
      channels_[{index, m.peer, payload(m)}].sends.push_back({index, i, m.block});
    for (const ScheduledMessage& m : s.operations[i].receives)
      channels_[{m.peer, index, payload(m)}].receives.push_back({index, i, m.block});
    ranks_[index].messages_left[i] =
        static_cast<int>(s.operations[i].sends.size() + s.operations[i].receives.size());
    return ranks_[index].posted = true;
  }

  const std::vector<Schedule>& schedules_;
  std::vector<RankRun>& runs_;
  Random& random_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, Payload>, Channel> channels_;
};

}  // namespace ringside::testing
