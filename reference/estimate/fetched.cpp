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
        only_run_(plan.cp_size()),
        arrived_(num_stages),
        pieces_(num_stages),
        is_sorted_(num_stages) {
    fetched_.stages.resize(num_stages);
    mark_seen();
    find_runs();
    deal_owners();
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
      if (sequences_.empty() || sequences_.back().seq != q.seq) sequences_.push_back({q.seq, {}});
      mark_seen_by(mask, q, sequences_.back().whole);
    }
    for (Sequence& sequence : sequences_) {
      unite(sequence.whole);
      for (const Interval keys : sequence.whole) runs_.mark_whole(keys);
    }
  }

  void mark_seen_by(const SequenceMask& mask, const Segment& q, std::vector<Interval>& whole) {
    const Interval first = mask.visible(q.pos), last = mask.visible(q.position(q.len - 1));
    const Interval some = keys_.meeting(q.seq, {first.begin, last.end});
    Interval all = keys_.inside(q.seq, {last.begin, first.end});
    if (all.size() == 0 || some.size() == 0) all = {some.begin, some.begin};
    if (all.size() > 0) whole.push_back(all);
    for (int i = some.begin; i < all.begin; ++i) mark_partly(mask, q, i);
    for (int i = all.end; i < some.end; ++i) mark_partly(mask, q, i);
  }

  void mark_partly(const SequenceMask& mask, const Segment& q, int i) {
    check_interrupt(32);
    const Interval rows = keys_seen(mask, keys_.segment(i), q, 0, q.len);
    if (rows.size() > 0) runs_.mark(i, rows);
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
      if (runs.size() == 1) only_run_[owner] = bits_of(owner, runs[0]);
      fetched_.owners.push_back({owner, stage, static_cast<int>(rows[owner]), 0});
      fetched_.stages[stage].messages += std::ssize(runs);
      fetched_.stages[stage].rows += rows[owner];
    }
  }

  // --- what arrives of the sequences that have queries, in the order of positions

  void add_arrived(const Sequence& sequence) {
    const Interval keys = keys_.of_sequence(sequence.seq);
    int next = keys.begin;
    for (const Interval whole : sequence.whole) {
      add_partly({next, whole.begin});
      add_whole(whole);
      next = whole.end;
    }
    add_partly({next, keys.end});
  }

  void add_whole(Interval keys) {
    check_interrupt(int64_t{keys.size()});
    const int* const stage_of = stage_.data();
    for (int i = keys.begin; i < keys.end;) {
      const int first = i, stage = stage_of[keys_.owner(i)];
      while (i < keys.end && stage_of[keys_.owner(i)] == stage) ++i;
      const Segment &begin = keys_.segment(first), &last = keys_.segment(i - 1);
      if (stage >= 0) add(stage, begin.seq, {begin.pos, last.pos + last.len}, i - first);
    }
  }

  void add_partly(Interval keys) {
    if (keys.size() <= 0) return;
    check_interrupt(2 * int64_t{keys.size()});
    int position = keys_.segment(keys.begin).pos;
    const int seq = keys_.segment(keys.begin).seq;
    for (int i = keys.begin; i < keys.end; ++i) {
      const auto [first, rows] = keys_.bits(i);
      const int owner = keys_.owner(i);
      const auto [begin, end] = only_run_[owner];
      if (begin < end)
        add_met(stage_[owner], seq, position - int64_t{first}, {first, int64_t{first} + rows},
                {begin, end});
      else if (stage_[owner] >= 0)
        for (const Interval run : runs_.of(owner))
          add_met(stage_[owner], seq, position - int64_t{first}, {first, int64_t{first} + rows},
                  bits_of(owner, run));
      position += rows;
    }
  }

  using Bits = std::pair<int64_t, int64_t>;
  Bits bits_of(int owner, Interval rows) const {
    const int64_t first = keys_.first_word(owner) * 64;
    return {first + rows.begin, first + rows.end};
  }

  // Positions lie `offset` beyond bits.
  void add_met(int stage, int seq, int64_t offset, Bits key, Bits run) {
    const int64_t begin = std::max(key.first, run.first), end = std::min(key.second, run.second);
    if (begin < end)
      add(stage, seq, {static_cast<int>(begin + offset), static_cast<int>(end + offset)}, 1);
  }

  void add(int stage, int seq, Interval positions, int pieces) {
    append(arrived_[stage], seq, positions.begin, 1, positions.size());
    pieces_[stage] += pieces;
  }

  // --- in which order it lies

  void count(int stage) {
    if (fetched_.stages[stage].rows == 0) return;
    is_sorted_[stage] = order_ == StackOrder::fewest_segments;
    const int64_t joins = pieces_[stage] - std::ssize(arrived_[stage]);
    if (is_sorted_[stage] && joins <= joins_in_order_of_arrival(stage)) {
      // What other sequences have decides.
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
    return *std::ranges::upper_bound(home(owner), row, {}, &Segment::row_end);
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
    const auto first = std::ranges::upper_bound(shard, run.begin, {}, &Segment::row_end);
    for (auto next = first + 1; next < shard.end() && next->row < run.end; ++next) {
      const int segment = static_cast<int>(next - shard.begin());
      const int here = keys_.place(from.owner, segment - 1);
      const int there = keys_.place(from.owner, segment);
      if (there < here) return false;
      for (int i = here + 1; i < there; ++i)
        if (arrives(i, from.stage)) return false;
    }
    return true;
  }

  bool arrives(int i, int stage) const {
    check_interrupt(2);
    if (stage_[keys_.owner(i)] != stage) return false;
    const Segment& key = keys_.segment(i);
    return std::ranges::any_of(runs_.of(keys_.owner(i)), [&](const Interval& run) {
      return run.begin < key.row_end() && key.row < run.end;
    });
  }

  const int rank_;
  const Plan& plan_;
  const HomeKeys& keys_;
  const StackOrder order_;
  const BlockSize block_size_;
  SeenRuns runs_;
  std::vector<Sequence> sequences_;
  std::vector<int> stage_;  // [cp_size]
  // [cp_size] as bits, where there is one; else an empty one.
  std::vector<std::pair<int64_t, int64_t>> only_run_;
  std::vector<Shard> arrived_;  // [stages]
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
