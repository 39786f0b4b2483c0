// Own tiles first; then only the rows of K/V that a rank's tiles see, straight from their owners.
//
// Step 0 computes home against home, and the first exchange travels under it. A rank's owners are
// dealt to the stages evenly by rows; each stage is one exchange and one step, and a stage in which
// nobody fetches is left out. The next exchange sends home rows and reads the buffer that is
// resident, so until the last one that is home with what came below it: home rows stay by a message
// to oneself.
//
// Of many short documents in many pieces a rank sees every second run of a few rows. A message of
// its own would cost more than the rows between two runs, so few of them are fetched, too.
#include "reference/transport/fetch.h"

#include <algorithm>
#include <utility>

#include "reference/plan/tiles.h"
#include "reference/rows/row_places.h"
#include "reference/support/interrupt.h"
#include "reference/transport/transport.h"

namespace ringside {
namespace {

constexpr int kMostRuns = 128;  // from one owner to one rank, about

using Runs = std::vector<Interval>;  // of rows, rising

int64_t rows_of(const Runs& runs) {
  int64_t rows = 0;
  for (const Interval& run : runs) rows += run.size();
  return rows;
}

// Joins runs with at most `gap` rows between them.
Runs without_gaps(const Runs& runs, int gap) {
  Runs joined;
  for (const Interval& run : runs)
    if (!joined.empty() && run.begin - joined.back().end <= gap)
      joined.back().end = run.end;
    else
      joined.push_back(run);
  return joined;
}

class Fetch {
 public:
  Fetch(Plan& plan, int stages, StackOrder order)
      : plan_(plan),
        order_(order),
        cp_size_(plan.cp_size()),
        stages_(num_stages(stages, cp_size_)) {
    wanted_.resize(cp_size_);
    stage_.resize(cp_size_);
    for (int rank = 0; rank < cp_size_; ++rank) {
      for (int owner = 0; owner < cp_size_; ++owner) {
        check_interrupt(16);
        wanted_[rank].push_back(owner == rank ? Runs{} : seen_by(rank, owner));
      }
      deal_owners(rank);
    }
  }

  void fill_steps() {
    for (int rank = 0; rank < cp_size_; ++rank) plan_.steps_of_rank[rank].push_back(own(rank));
    for (size_t i = 0; i < used_.size(); ++i)
      for (int rank = 0; rank < cp_size_; ++rank)
        plan_.steps_of_rank[rank].push_back(fetched(rank, used_[i], i + 1 == used_.size()));
  }

 private:
  const Shard& home(int rank) const { return plan_.shard(plan_.home_kv[rank]); }
  Range heads() const { return {0, plan_.problem.num_kv_heads}; }

  Runs seen_by(int rank, int owner) const {
    const Runs runs = rows_seen(plan_.problem, plan_.shard(plan_.home_q[rank]), home(owner));
    return without_gaps(runs, most_rows_between(home(owner)));
  }

  void deal_owners(int rank) {
    std::vector<int64_t> rows;
    for (const Runs& runs : wanted_[rank]) rows.push_back(rows_of(runs));
    stage_[rank] = stages_of_owners(rank, rows, stages_);
    for (const int stage : stage_[rank]) {
      if (stage < 0) continue;
      const auto place = std::ranges::lower_bound(used_, stage);
      if (place == used_.end() || *place != stage) used_.insert(place, stage);
    }
  }

  Step own(int rank) const {
    Step step;
    step.q = plan_.home_q[rank];
    step.kv = plan_.home_kv[rank];
    if (plan_.holds(rank)) step.tiles = add_tiles(plan_, step.q.shard, step.kv.shard);
    return step;
  }

  Step fetched(int rank, int stage, bool last) {
    Step step;
    step.q = plan_.home_q[rank];
    Shard resident = last ? Shard{} : home(rank);
    if (!last) keep_home(rank, step.before);
    const size_t first = resident.size();
    receive(rank, stage, resident, step.before);
    send(rank, stage, step.before);
    if (!step.before.empty()) step.before.kind = ExchangeKind::all_to_all;
    const Shard arrived(resident.begin() + static_cast<int64_t>(first), resident.end());
    if (plan_.holds(rank)) step.tiles = add_tiles(plan_, step.q.shard, arrived);
    if (!arrived.empty())
      step.kv = {add_shard(plan_, std::move(resident)), heads()};
    else if (!last)
      step.kv = plan_.home_kv[rank];
    return step;
  }

  void keep_home(int rank, Exchange& exchange) const {
    const Message whole{rank, Operand::kv, 0, num_rows(home(rank)), heads()};
    add_message(exchange.sends, whole);
    add_message(exchange.receives, whole);
  }

  // In the order of deal_owners(), below what `resident` has; as stack() has it where that makes
  // fewer segments.
  void receive(int rank, int stage, Shard& resident, Exchange& exchange) const {
    const int begin = num_rows(resident);
    Shard below;  // by itself: tiles are of what arrives, so it joins nothing above
    for (int hop = 1; hop < cp_size_; ++hop) {
      const int owner = (rank + hop) % cp_size_;
      if (stage_[rank][owner] != stage) continue;
      for (const Interval& run : wanted_[rank][owner]) {
        check_interrupt(32);
        const int row = begin + num_rows(below);
        add_message(exchange.receives, {owner, Operand::kv, row, run.size(), heads()});
        append_rows(below, home(owner), run);
      }
    }
    if (order_ == StackOrder::fewest_segments)
      if (const auto fewer = in_fewer_segments(below, plan_.problem.layout_k.batch()))
        below = move_to(*fewer, below, begin, exchange.receives);
    for (Segment segment : below) {
      segment.row += begin;
      resident.push_back(segment);
    }
  }

  // Messages that land `begin` rows below the rows of `from` land where `to` has their positions.
  static Shard move_to(const Shard& to, const Shard& from, int begin,
                       std::vector<Message>& messages) {
    const RowPlaces places(to);
    for (Message& m : messages) {
      if (m.row < begin) continue;  // home
      const auto runs = places.runs(from, {m.row - begin, m.row_end() - begin});
      m.row = is_one_block(runs) ? begin + runs[0].to : kByPosition;
    }
    return to;
  }

  void send(int rank, int stage, Exchange& exchange) const {
    for (int reader = 0; reader < cp_size_; ++reader) {
      if (stage_[reader][rank] != stage) continue;
      for (const Interval& run : wanted_[reader][rank])
        add_message(exchange.sends, {reader, Operand::kv, run.begin, run.size(), heads()});
    }
  }

  Plan& plan_;
  StackOrder order_;
  int cp_size_, stages_;
  std::vector<std::vector<Runs>> wanted_;  // [rank][owner] rows of the owner's home
  std::vector<std::vector<int>> stage_;    // [rank][owner] when, or -1
  std::vector<int> used_;                  // stages in which somebody fetches, rising
};

}  // namespace

int most_rows_between(const Shard& home) { return num_rows(home) / kMostRuns; }

void append_rows(Shard& shard, const Shard& from, Interval rows) {
  auto segment = std::ranges::upper_bound(from, rows.begin, {}, &Segment::row_end);
  for (; segment != from.end() && segment->row < rows.end; ++segment) {
    const int begin = std::max(rows.begin, segment->row) - segment->row;
    const int end = std::min(rows.end, segment->row_end()) - segment->row;
    append(shard, segment->seq, segment->position(begin), segment->stride, end - begin);
  }
}

int num_stages(int wanted, int cp_size) { return std::clamp(wanted, 1, std::max(cp_size - 1, 1)); }

std::vector<int> stages_of_owners(int rank, std::span<const int64_t> rows, int stages) {
  const int owners = static_cast<int>(rows.size());
  int64_t total = 0, before = 0;
  for (const int64_t of_owner : rows) total += of_owner;
  std::vector<int> stage_of(owners, -1);
  for (int hop = 1; hop < owners; ++hop) {
    const int owner = (rank + hop) % owners;
    if (rows[owner] == 0) continue;
    stage_of[owner] = static_cast<int>((2 * before + rows[owner]) * stages / (2 * total));
    before += rows[owner];
  }
  return stage_of;
}

void fetch(Plan& plan, int stages, StackOrder order) { Fetch(plan, stages, order).fill_steps(); }

}  // namespace ringside
