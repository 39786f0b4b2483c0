// Plays the streams of all ranks: an operation ends once what it waits for has, a group of messages
// once every partner has posted the other ends.
#include <map>
#include <optional>
#include <tuple>

#include "reference/schedule/verify/verify_schedule.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

class Play {
 public:
  explicit Play(const std::vector<Schedule>& schedules) : schedules_(schedules) {
    for (const Schedule& s : schedules) {
      Rank& rank = ranks_.emplace_back();
      rank.ended.resize(s.operations.size(), false);
      for (int i = 0; i < static_cast<int>(s.operations.size()); ++i)
        rank.operations[static_cast<int>(s.operations[i].stream)].push_back(i);
    }
  }

  void run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        for (int stream = 0; stream < 2; ++stream)
          while (advance(static_cast<int>(rank), stream)) progress = true;
    }
    for (const int stream : {1, 0})  // groups first: they are what others wait for
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        if (const auto op = next(static_cast<int>(rank), stream))
          fail<PlanError>(Unsaid{{static_cast<int>(rank), schedules_[rank].operations[*op].step}},
                          "rank ", rank, " never ends operation ", *op, ", ",
                          name(schedules_[rank].operations[*op].kind), " of step ",
                          schedules_[rank].operations[*op].step, ": deadlock");
  }

 private:
  struct Rank {
    std::vector<int> operations[2];  // of each stream
    size_t done[2] = {0, 0};
    std::vector<bool> ended;
    bool posted = false;  // the next group
  };
  struct Counts {
    int64_t sent = 0, received = 0;  // posted so far
  };

  std::optional<int> next(int rank, int stream) const {
    const Rank& r = ranks_[rank];
    if (r.done[stream] == r.operations[stream].size()) return std::nullopt;
    return r.operations[stream][r.done[stream]];
  }

  bool advance(int rank, int stream) {
    const auto index = next(rank, stream);
    if (!index) return false;
    Rank& r = ranks_[rank];
    const Operation& op = schedules_[rank].operations[*index];
    check_interrupt(8 + static_cast<int64_t>(op.sends.size() + op.receives.size()));
    for (const int before : op.after)
      if (!r.ended[before]) return false;
    if (op.kind == OperationKind::exchange) {
      if (!r.posted) post(rank, op);
      r.posted = true;
      if (!is_met(rank, op)) return false;
      r.posted = false;
    }
    r.ended[*index] = true;
    ++r.done[stream];
    return true;
  }

  Counts& channel(int from, int to, Payload payload) { return channels_[{from, to, payload}]; }
  Payload payload(int rank, const ScheduledMessage& m) const {
    return schedules_[rank].buffers[m.block.buffer].payload;
  }

  void post(int rank, const Operation& op) {
    for (const ScheduledMessage& m : op.sends) ++channel(rank, m.peer, payload(rank, m)).sent;
    for (const ScheduledMessage& m : op.receives)
      ++channel(m.peer, rank, payload(rank, m)).received;
  }

  // Groups end in order, so that all posted so far must have met.
  bool is_met(int rank, const Operation& op) {
    for (const ScheduledMessage& m : op.sends)
      if (const Counts& c = channel(rank, m.peer, payload(rank, m)); c.received < c.sent)
        return false;
    for (const ScheduledMessage& m : op.receives)
      if (const Counts& c = channel(m.peer, rank, payload(rank, m)); c.sent < c.received)
        return false;
    return true;
  }

  const std::vector<Schedule>& schedules_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, Payload>, Counts> channels_;
};

}  // namespace

void verify_progress(const std::vector<Schedule>& schedules) { Play(schedules).run(); }

}  // namespace ringside
