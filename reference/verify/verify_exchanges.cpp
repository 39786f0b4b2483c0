// Plays the exchanges of a plan without data: channels between pairs of ranks are queues, a group
// of messages completes when both ends of each have been posted (no message is ever buffered, which
// is the least that any transport promises), and buffers hold row numbers instead of tokens.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "reference/plan/residency.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

struct Sent {
  Message message;
  int step, shard;  // when, and what the sender's buffer held
};

// A message in words, put into them only where something is wrong.
struct Described {
  const char* verb;
  At at;
  Message message;
};

std::ostream& operator<<(std::ostream& out, const Described& described) {
  const Message& m = described.message;
  out << described.at << " " << described.verb << " " << m.peer << ": "
      << (m.operand == Operand::q ? "q " : "kv ");
  if (m.lands_by_position())
    out << m.rows << " rows by position";
  else
    out << "rows [" << m.row << ", " << int64_t{m.row} + m.rows << ")";
  return out << " heads [" << m.heads.begin << ", " << m.heads.end << ")";
}

Described describe(const char* verb, int rank, int step, const Message& m) {
  return {verb, {rank, step}, m};
}

Described of_row(Described message, int row) {  // of the pack
  (message.message.operand == Operand::q ? message.at.row : message.at.key) = row;
  return message;
}

class Playback {
 public:
  explicit Playback(const Plan& plan)
      : plan_(plan),
        cp_size_(plan.cp_size()),
        ranks_(plan.cp_size()),
        channels_(2 * static_cast<size_t>(cp_size_) * cp_size_),
        rows_of_q_shard_(plan.shards.size()),
        rows_of_kv_shard_(plan.shards.size()),
        landed_(plan.cp_size()) {
    for (int rank = 0; rank < cp_size_; ++rank) {
      ranks_[rank].q = plan.home_q[rank];
      ranks_[rank].kv = plan.home_kv[rank];
    }
  }

  int64_t run() {
    for (int running = cp_size_; running > 0;) {
      bool progress = false;
      for (int rank = 0; rank < cp_size_; ++rank) progress |= post_if_idle(rank);
      for (int rank = 0; rank < cp_size_; ++rank) progress |= complete_if_met(rank);
      running = static_cast<int>(std::count_if(
          ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.step < plan_.num_steps(); }));
      if (running > 0 && !progress) report_deadlock();
    }
    return messages_;
  }

 private:
  struct Rank {
    Buffer q, kv;  // resident
    int step = 0;
    bool posted = false;
  };
  struct Channel {
    std::vector<Sent> sent;
    size_t receives_posted = 0, received = 0;
  };

  // The n-th send of an operand meets the n-th receive.
  Channel& channel(int from, int to, Operand operand) {
    const size_t pair = static_cast<size_t>(from) * cp_size_ + to;
    return channels_[2 * pair + (operand == Operand::q ? 0 : 1)];
  }
  const Step& step_of(int rank) const { return plan_.steps_of_rank[rank][ranks_[rank].step]; }

  bool post_if_idle(int rank) {
    Rank& r = ranks_[rank];
    if (r.posted || r.step == plan_.num_steps()) return false;
    const Step& step = step_of(rank);
    check_interrupt(32);
    for (const Message& m : step.before.sends) {
      check_interrupt(32);
      const Buffer& from = m.operand == Operand::q ? r.q : r.kv;
      check_inside(m, from, describe("sends to", rank, r.step, m));
      plan_require(!m.lands_by_position(), describe("sends to", rank, r.step, m),
                   ", but only a receive can do without a row");
      channel(rank, m.peer, m.operand).sent.push_back({m, r.step, from.shard});
      ++messages_;
    }
    for (const Message& m : step.before.receives) {
      const Buffer& into = m.operand == Operand::q ? step.q : step.kv;
      check_inside(m, into, describe("receives from", rank, r.step, m));
      ++channel(m.peer, rank, m.operand).receives_posted;
    }
    return r.posted = true;
  }

  void check_inside(const Message& m, const Buffer& buffer, const Described& what) const {
    plan_require(0 <= m.peer && m.peer < cp_size_, what, ", but there are ", cp_size_, " ranks");
    const int row = m.lands_by_position() ? 0 : m.row;
    plan_require(m.rows >= 1 && row >= 0 && row <= plan_.rows(buffer) - m.rows, what,
                 ", but the buffer has ", plan_.rows(buffer), " rows");
    plan_require(m.heads.begin < m.heads.end && buffer.heads.begin <= m.heads.begin &&
                     m.heads.end <= buffer.heads.end,
                 what, ", but the buffer holds heads [", buffer.heads.begin, ", ", buffer.heads.end,
                 ")");
  }

  bool complete_if_met(int rank) {
    Rank& r = ranks_[rank];
    check_interrupt(8);
    if (!r.posted || first_unmet(rank)) return false;
    const Step& step = step_of(rank);
    for (const Message& m : step.before.receives) take(rank, m);
    replace(rank, Operand::q, r.q, step.q);
    replace(rank, Operand::kv, r.kv, step.kv);
    landed_[rank].clear();
    r.posted = false;
    ++r.step;
    return true;
  }

  // The first message of the rank's group whose other end has not been posted.
  std::optional<Described> first_unmet(int rank) {
    const Exchange& group = step_of(rank).before;
    check_interrupt(4 * static_cast<int64_t>(group.sends.size() + group.receives.size()));
    for (const Message& m : group.sends)
      if (const Channel& c = channel(rank, m.peer, m.operand); c.sent.size() > c.receives_posted)
        return describe("sends to", rank, ranks_[rank].step, m);
    for (const Message& m : group.receives)
      if (const Channel& c = channel(m.peer, rank, m.operand); c.receives_posted > c.sent.size())
        return describe("receives from", rank, ranks_[rank].step, m);
    return std::nullopt;
  }

  void take(int rank, const Message& m) {
    Channel& c = channel(m.peer, rank, m.operand);
    const Sent& sent = c.sent[c.received++];
    const Described what = describe("receives from", rank, ranks_[rank].step, m);
    plan_require(sent.step == ranks_[rank].step && sent.message.rows == m.rows &&
                     sent.message.heads == m.heads,
                 what,
                 ", but what meets it is: ", describe("sends to", m.peer, sent.step, sent.message));
    const Step& step = step_of(rank);
    const Buffer& into = m.operand == Operand::q ? step.q : step.kv;
    const auto& got = rows_of(m.operand, sent.shard);
    const std::span arriving = std::span(got).subspan(sent.message.row, m.rows);
    check_interrupt(m.rows);
    if (m.lands_by_position()) return take_by_position(rank, m, into, arriving);
    const auto& claimed = rows_of(m.operand, into.shard);
    for (int i = 0; i < m.rows; ++i)
      if (arriving[i] != claimed[m.row + i])
        fail<PlanError>(of_row(what, claimed[m.row + i]), ": row ", m.row + i,
                        " claims global row ", claimed[m.row + i], " but global row ", arriving[i],
                        " arrives");
    landed_[rank].push_back(m);
  }

  // Each row where the buffer claims it, row by row: whoever runs the plan asks segments.
  void take_by_position(int rank, const Message& m, const Buffer& into,
                        std::span<const int> arriving) {
    const auto& place_of = places_of(m.operand, into.shard);
    Message part = m;
    part.rows = 0;
    for (const int global : arriving) {
      const int place = place_of[global];
      plan_require(place >= 0,
                   of_row(describe("receives from", rank, ranks_[rank].step, m), global),
                   ": global row ", global, " arrives, which the buffer does not hold");
      if (part.rows > 0 && place != part.row_end()) {
        landed_[rank].push_back(part);
        part.rows = 0;
      }
      if (part.rows++ == 0) part.row = place;
    }
    landed_[rank].push_back(part);
  }

  // A buffer that is received into, or that changes, is new: every row and head must arrive once.
  void replace(int rank, Operand operand, Buffer& resident, const Buffer& next) {
    if (!is_replaced(plan_, rank, ranks_[rank].step, operand)) return;
    std::vector<Message> parts;
    for (const Message& m : landed_[rank])
      if (m.operand == operand) parts.push_back(m);
    int64_t area = 0;
    for (const Message& part : parts) area += int64_t{part.rows} * part.heads.size();
    check_apart(rank, parts);
    const int64_t wanted = int64_t{plan_.rows(next)} * next.heads.size();
    plan_require(area == wanted, At{rank, ranks_[rank].step}, ": the resident ",
                 operand == Operand::q ? "q" : "kv", " buffer has ", wanted,
                 " rows x heads, of which only ", area, " arrive");
    resident = next;
  }

  // In the order of rows each part has only those to look at that begin before it ends: a buffer of
  // thousands of runs is as soon checked as one of a few.
  void check_apart(int rank, const std::vector<Message>& parts) const {
    std::vector<size_t> by_row(parts.size());
    std::iota(by_row.begin(), by_row.end(), size_t{0});
    std::ranges::stable_sort(by_row, {}, [&](size_t i) { return parts[i].row; });
    for (size_t x = 0; x < by_row.size(); ++x)
      for (size_t y = x + 1; y < by_row.size(); ++y) {
        const auto [first, second] = std::minmax(by_row[x], by_row[y]);
        check_interrupt(4);
        if (parts[by_row[x]].row_end() <= parts[by_row[y]].row) break;
        if (parts[first].heads.end <= parts[second].heads.begin ||
            parts[second].heads.end <= parts[first].heads.begin)
          continue;
        fail<PlanError>(describe("receives from", rank, ranks_[rank].step, parts[second]),
                        ", onto rows that peer ", parts[first].peer, " fills too");
      }
  }

  const std::vector<int>& rows_of(Operand operand, int shard) {
    auto& cached = (operand == Operand::q ? rows_of_q_shard_ : rows_of_kv_shard_)[shard];
    if (cached.empty())
      cached = global_rows(operand == Operand::q ? plan_.problem.layout_q : plan_.problem.layout_k,
                           plan_.shards[shard]);
    return cached;
  }

  // The row of a shard that holds each global row, or -1.
  const std::vector<int>& places_of(Operand operand, int shard) {
    auto& places = places_[{operand, shard}];
    if (!places.empty()) return places;
    const Problem& problem = plan_.problem;
    places.assign((operand == Operand::q ? problem.layout_q : problem.layout_k).num_rows(), -1);
    const auto& rows = rows_of(operand, shard);
    for (size_t row = 0; row < rows.size(); ++row) places[rows[row]] = static_cast<int>(row);
    return places;
  }

  [[noreturn]] void report_deadlock() {
    for (int rank = 0; rank < cp_size_; ++rank)
      if (ranks_[rank].posted)
        if (const auto unmet = first_unmet(rank))
          fail<PlanError>(*unmet, ", but the other end never comes: deadlock");
    throw PlanError("deadlock");
  }

  const Plan& plan_;
  int cp_size_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
  std::vector<std::vector<int>> rows_of_q_shard_, rows_of_kv_shard_;
  std::map<std::pair<Operand, int>, std::vector<int>> places_;  // by shard
  std::vector<std::vector<Message>> landed_;  // [ranks] in this step: rows that lie together
  int64_t messages_ = 0;
};

}  // namespace

int64_t verify_exchanges(const Plan& plan) { return Playback(plan).run(); }

}  // namespace ringside
