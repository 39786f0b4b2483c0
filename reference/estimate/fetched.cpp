#include "reference/estimate/fetched.h"

#include <algorithm>
#include <span>

#include "reference/estimate/seen_runs.h"
#include "reference/estimate/shard_counts.h"
#include "reference/support/interrupt.h"
#include "reference/transport/fetch.h"

namespace ringside {
namespace {

class OfRank {
 public:
  OfRank(int rank, const Plan& plan, const HomeKeys& keys, int num_stages, StackOrder order,
         const BlockSize& block_size)
      : rank_(rank),
        plan_(plan),
        keys_(keys),
        order_(order),
        block_size_(block_size),
        runs_(keys),
        arrived_(num_stages),
        pieces_(num_stages),
        is_sorted_(num_stages) {
    fetched_.stages.resize(num_stages);
    mark_seen();
    find_runs();
    deal_owners();
    find_alike();
    for (const Sequence& sequence : sequences_) add_arrived(sequence);
    for (int stage = 0; stage < num_stages; ++stage) count(stage);
    for (Fetched::FromOwner& from : fetched_.owners) find_apart(from);
    fetched_.own = count_line(plan.problem, queries(), home(rank), block_size);
  }

  Fetched result() { return std::move(fetched_); }

 private:
  struct Sequence {  // that has queries here
    int seq;
    std::vector<Interval> whole;  // keys that some query sees, each whole
    std::vector<int> partly;      // that some sees a part of
  };

  const Shard& home(int owner) const { return plan_.shard(plan_.home_kv[owner]); }
  const Shard& queries() const { return plan_.shard(plan_.home_q[rank_]); }

  // --- what is seen

  void mark_seen() {
    Shard sorted = queries();
    std::ranges::stable_sort(sorted, {}, &Segment::seq);
    for (Segment q : sorted) {
      const SequenceMask mask = mask_of(plan_.problem, q.seq);
      q.len = q.rows_below(mask.len_q);
      if (q.len == 0) continue;
      if (sequences_.empty() || sequences_.back().seq != q.seq)
        sequences_.push_back({q.seq, {}, {}});
      mark_seen_by(mask, q, sequences_.back());
    }
    for (Sequence& sequence : sequences_) {
      unite(sequence.whole);
      for (const Interval keys : sequence.whole) runs_.mark_whole(keys);
    }
  }

  void mark_seen_by(const SequenceMask& mask, const Segment& q, Sequence& sequence) {
    const Interval first = mask.visible(q.pos), last = mask.visible(q.position(q.len - 1));
    const Interval some = keys_.meeting(q.seq, {first.begin, last.end});
    Interval all = keys_.inside(q.seq, {last.begin, first.end});
    if (all.size() == 0 || some.size() == 0) all = {some.begin, some.begin};
    if (all.size() > 0) sequence.whole.push_back(all);
    for (int i = some.begin; i < all.begin; ++i) mark_partly(mask, q, i, sequence);
    for (int i = all.end; i < some.end; ++i) mark_partly(mask, q, i, sequence);
  }

  void mark_partly(const SequenceMask& mask, const Segment& q, int i, Sequence& sequence) {
    check_interrupt(32);
    const Interval rows = keys_seen(mask, keys_.segment(i), q, 0, q.len);
    if (rows.size() == 0) return;
    runs_.mark(i, rows);
    sequence.partly.push_back(i);
  }

  // --- what is wanted: runs of rows, owner by owner

  void find_runs() {
    for (int owner = 0; owner < plan_.cp_size(); ++owner)
      if (owner == rank_)
        runs_.skip();
      else
        runs_.find(owner, most_rows_between(home(owner)));
  }

  void deal_owners() {
    const int ranks = plan_.cp_size();
    std::vector<int64_t> rows(ranks);
    for (int owner = 0; owner < ranks; ++owner)
      for (const Interval run : runs_.of(owner)) rows[owner] += run.size();
    stage_ = stages_of_owners(rank_, rows, static_cast<int>(arrived_.size()));
    for (int hop = 1; hop < ranks; ++hop) {
      const int owner = (rank_ + hop) % ranks, stage = stage_[owner];
      if (stage < 0) continue;
      const auto runs = runs_.of(owner);
      fetched_.owners.push_back({owner, stage, static_cast<int>(rows[owner]), 0});
      fetched_.stages[stage].messages += std::ssize(runs);
      fetched_.stages[stage].rows += rows[owner];
    }
  }

  // --- what arrives of the sequences that have queries, in the order of positions: every key of
  // which some row is seen, and what is fetched with it and goes on where it begins or ends, as far
  // as blocks of what is seen reach

  // Owners between which all that are fetched from belong to one stage, up and down from each.
  void find_alike() {
    const int ranks = plan_.cp_size();
    check_interrupt(8 * int64_t{ranks});
    first_alike_.resize(ranks);
    last_alike_.resize(ranks);
    const auto differ = [&](int before, int owner) {
      return owner == rank_ || before == rank_ || stage_[before] != stage_[owner];
    };
    const auto is_known = [&](int owner) { return owner == rank_ || stage_[owner] >= 0; };
    for (int owner = 0, first = 0, before = -1; owner < ranks; ++owner) {
      if (is_known(owner)) {
        if (before >= 0 && differ(before, owner)) first = before + 1;
        before = owner;
      }
      first_alike_[owner] = first;
    }
    for (int owner = ranks - 1, last = ranks - 1, behind = -1; owner >= 0; --owner) {
      if (is_known(owner)) {
        if (behind >= 0 && differ(owner, behind)) last = behind - 1;
        behind = owner;
      }
      last_alike_[owner] = last;
    }
  }

  void add_arrived(const Sequence& sequence) {
    const Interval keys = keys_.of_sequence(sequence.seq);
    std::vector<Interval> seen = sequence.whole;
    for (const int i : sequence.partly) seen.push_back({i, i + 1});
    unite(seen);
    int next = keys.begin;  // the first key that has not been added
    auto whole = sequence.whole.begin();
    for (size_t i = 0; i < seen.size(); ++i) {
      const Interval some = seen[i];
      add_before(next, some.begin);
      for (next = some.begin; whole != sequence.whole.end() && whole->end <= some.end; ++whole) {
        add_partly({next, whole->begin});
        add_whole(*whole);
        next = whole->end;
      }
      add_partly({next, some.end});
      next = add_behind(some.end, i + 1 < seen.size() ? seen[i + 1].begin : keys.end);
    }
  }

  void add_whole(Interval keys) {
    for (int i = keys.begin; i < keys.end;) {
      const auto [end, rises] = keys_.stretch(i, keys.end);
      while (i < end) {
        check_interrupt(64);
        const int first = i, owner = keys_.owner(i);
        i = rises ? keys_.behind_owners_to(last_alike_[owner], {i, end})
                  : keys_.behind_owners_down_to(first_alike_[owner], {i, end});
        const Segment &begin = keys_.segment(first), &last = keys_.segment(i - 1);
        if (stage_[owner] >= 0)
          add(stage_[owner], begin.seq, {begin.pos, last.pos + last.len}, i - first);
      }
    }
  }

  // From where on keys are of the stage of the one that is seen.
  void add_before(int next, int seen) {
    if (next == seen) return;
    const int stage = stage_[keys_.owner(seen)];
    int first = seen;
    while (first > next && stage >= 0 && stage_[keys_.owner(first - 1)] == stage &&
           arrives(first - 1, stage))
      --first;
    add_partly({first, seen});
  }

  // Up to where the last block of what is seen ends, wherever it began.
  int add_behind(int seen, int end) {
    const int stage = stage_[keys_.owner(seen - 1)];
    const Segment& last = keys_.segment(seen - 1);
    const int64_t position = int64_t{last.pos} + last.len + block_size_.k;
    int next = seen;
    while (next < end && stage >= 0 && stage_[keys_.owner(next)] == stage &&
           keys_.segment(next).pos < position && arrives(next, stage))
      ++next;
    add_partly({seen, next});
    return next;
  }

  void add_partly(Interval keys) {
    for (int i = keys.begin; i < keys.end; ++i) {
      check_interrupt(16);
      const Segment& key = keys_.segment(i);
      const int owner = keys_.owner(i), offset = key.pos - key.row;
      if (stage_[owner] < 0) continue;
      for (const Interval run : runs_from(owner, key.row)) {
        if (run.begin >= key.row_end()) break;
        const int begin = std::max(key.row, run.begin), end = std::min(key.row_end(), run.end);
        add(stage_[owner], key.seq, {begin + offset, end + offset}, 1);
      }
    }
  }

  // Runs of an owner that end behind a row.
  std::span<const Interval> runs_from(int owner, int row) const {
    const auto runs = runs_.of(owner);
    const auto first = std::ranges::upper_bound(runs, row, {}, &Interval::end);
    return {first, runs.end()};
  }

  void add(int stage, int seq, Interval positions, int pieces) {
    append(arrived_[stage], seq, positions.begin, 1, positions.size());
    pieces_[stage] += pieces;
  }

  // --- in which order it lies

  void count(int stage) {
    if (fetched_.stages[stage].rows == 0) return;
    is_sorted_[stage] = order_ == StackOrder::fewest_segments;
    // At least so many; in the order of arrival only what is first in a message joins what was
    // last.
    const int64_t joins = pieces_[stage] - std::ssize(arrived_[stage]);
    if (is_sorted_[stage] && joins < fetched_.stages[stage].messages &&
        joins <= joins_in_order_of_arrival(stage)) {
      // What was not counted decides.
      const int batch = plan_.problem.layout_k.batch();
      is_sorted_[stage] = in_fewer_segments(in_order_of_arrival(stage), batch).has_value();
    }
    if (!is_sorted_[stage]) arrived_[stage] = in_order_of_arrival(stage);
    fetched_.stages[stage].counts =
        count_line(plan_.problem, queries(), arrived_[stage], block_size_);
  }

  Shard in_order_of_arrival(int stage) const {
    Shard shard;
    for (const Fetched::FromOwner& from : fetched_.owners)
      for (const Interval run : runs_.of(from.owner))
        if (from.stage == stage) append_rows(shard, home(from.owner), run);
    return shard;
  }

  // Inside a home none go on; the last of a run may, as the first of the next one.
  int64_t joins_in_order_of_arrival(int stage) const {
    int64_t joins = 0;
    int seq = -1, position = 0;  // behind the last row that arrived
    for (const Fetched::FromOwner& from : fetched_.owners) {
      if (from.stage != stage) continue;
      for (const Interval run : runs_.of(from.owner)) {
        const Segment& first = segment_at(from.owner, run.begin);
        joins += first.seq == seq && first.pos + run.begin - first.row == position;
        const Segment& last = segment_at(from.owner, run.end - 1);
        seq = last.seq, position = last.pos + run.end - last.row;
      }
    }
    return joins;
  }

  const Segment& segment_at(int owner, int row) const {
    check_interrupt(8);
    return home(owner)[keys_.segment_at(owner, row)];
  }

  // --- what lies together there and not here

  void find_apart(Fetched::FromOwner& from) {
    if (!is_sorted_[from.stage]) return;
    for (const Interval run : runs_.of(from.owner))
      if (!lie_together(from, run)) from.apart += run.size();
    fetched_.stages[from.stage].apart += from.apart;
  }

  bool lie_together(const Fetched::FromOwner& from, Interval run) const {
    const Shard& shard = home(from.owner);
    const int segments = static_cast<int>(shard.size());
    for (int segment = keys_.segment_at(from.owner, run.begin) + 1;
         segment < segments && shard[segment].row < run.end; ++segment) {
      const auto& between = keys_.between(from.owner, segment);
      if (between.nothing) continue;
      if (arrives(between.owner, between.row, from.stage)) return false;
      const int here = keys_.place(from.owner, segment - 1);
      const int there = keys_.place(from.owner, segment);
      if (there < here) return false;
      for (int i = here + 1; i < there; ++i)
        if (arrives(i, from.stage)) return false;
    }
    return true;
  }

  bool arrives(int owner, int row, int stage) const {
    check_interrupt(2);
    if (stage_[owner] != stage) return false;
    const auto runs = runs_from(owner, row);
    return !runs.empty() && runs.front().begin <= row;
  }

  bool arrives(int i, int stage) const {
    check_interrupt(2);
    if (stage_[keys_.owner(i)] != stage) return false;
    const Segment& key = keys_.segment(i);
    const auto runs = runs_from(keys_.owner(i), key.row);
    return !runs.empty() && runs.front().begin < key.row_end();
  }

  const int rank_;
  const Plan& plan_;
  const HomeKeys& keys_;
  const StackOrder order_;
  const BlockSize block_size_;
  SeenRuns runs_;
  std::vector<Sequence> sequences_;
  std::vector<int> stage_;                     // [cp_size]
  std::vector<int> first_alike_, last_alike_;  // [cp_size]
  std::vector<Shard> arrived_;                 // [stages]
  std::vector<int64_t> pieces_;
  std::vector<char> is_sorted_;
  Fetched fetched_;
};

}  // namespace

Fetched fetched_by(int rank, const Plan& plan, const HomeKeys& keys, int num_stages,
                   StackOrder order, const BlockSize& block_size) {
  return OfRank(rank, plan, keys, num_stages, order, block_size).result();
}

}  // namespace ringside
