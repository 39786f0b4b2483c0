#include "reference/estimate/fetched_stripes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "reference/estimate/line.h"
#include "reference/estimate/shard_counts.h"
#include "reference/plan/tiles.h"
#include "reference/support/interrupt.h"
#include "reference/transport/fetch.h"

namespace ringside {
namespace {

constexpr int kNone = std::numeric_limits<int>::min() / 2;  // before every row, whatever the gap

// Where a list of 0s and 1s changes after `i`.
int next_change(const std::vector<uint8_t>& list, size_t first, int i, int end) {
  const uint8_t* const at = list.data() + first;
  const uint64_t all = at[i] * 0x0101010101010101u;
  for (uint64_t eight; i + 8 <= end; i += 8) {
    std::memcpy(&eight, at + i, 8);
    if (eight != all) break;
  }
  while (i < end && at[i] == static_cast<uint8_t>(all)) ++i;
  return i;
}

class StripesOfRank {
 public:
  StripesOfRank(int rank, const Plan& plan, const HomeStripes& stripes, int num_stages,
                StackOrder order, const BlockSize& block_size)
      : rank_(rank),
        ranks_(plan.cp_size()),
        plan_(plan),
        stripes_(stripes),
        order_(order),
        block_size_(block_size),
        joined_behind_(ranks_),
        rows_alone_(ranks_),
        is_joined_(num_stages),
        arrived_(num_stages) {
    fetched_.stages.resize(num_stages);
    find_seen();
    deal_owners();
    auto last = queries().rbegin();
    for (int seq = stripes.batch() - 1; seq >= 0; --seq) {
      const bool has_queries = last != queries().rend() && last->seq == seq;
      Segment q = has_queries ? *last++ : Segment{seq};
      q.len = q.rows_below(plan.problem.layout_q.len(seq));
      add_arrived(seq, q);
    }
    for (int stage = 0; stage < num_stages; ++stage)
      if (is_joined_[stage]) find_apart(stage);
    const Shard& home = plan.shard(plan.home_kv[rank]);
    fetched_.own = count_line(plan.problem, queries(), home, block_size);
  }

  Fetched result() { return std::move(fetched_); }

 private:
  struct Stripes {    // of one sequence that are alike
    Interval owners;  // none of them this rank
    Interval rows;
    int length = 0;    // rows of each
    size_t first = 0;  // of what joined_before_ says of them
  };
  struct Arrived {  // of one sequence in a stage, by position
    int seq, first_owner, last_owner;
  };

  const Shard& queries() const { return plan_.shard(plan_.home_q[rank_]); }

  // --- what is seen, and which of its rows are fetched in one message

  void find_seen() {
    std::vector<int> gaps;
    for (const Buffer& home : plan_.home_kv) gaps.push_back(most_rows_between(plan_.shard(home)));
    std::vector<int> end(ranks_, kNone), rows(ranks_), messages(ranks_);
    seen_.resize(stripes_.batch());
    for (const Segment& q : queries()) {
      find_seen_by(q);
      const int* const first_rows = stripes_.first_rows(q.seq).data();
      for (const Stripes& seen : seen_[q.seq]) {
        check_interrupt(2 * int64_t{seen.owners.size()} + 1);
        uint8_t* const joined = joined_before_.data() + seen.first;
        for (int i = 0, owner = seen.owners.begin; owner < seen.owners.end; ++i, ++owner) {
          const int from = first_rows[owner] + seen.rows.begin;
          const int to = first_rows[owner] + seen.rows.end;
          const bool join = from - end[owner] <= gaps[owner];
          rows[owner] += to - (join ? end[owner] : from);
          messages[owner] += !join;
          joined[i] = join;
          end[owner] = to;
        }
      }
    }
    rows_ = std::move(rows);
    messages_ = std::move(messages);
  }

  // Which rows of which stripes the queries of one sequence see.
  void find_seen_by(Segment q) {
    const SequenceMask mask = mask_of(plan_.problem, q.seq);
    q.len = q.rows_below(mask.len_q);
    if (q.len == 0) return;
    std::vector<Stripes>& seen = seen_[q.seq];
    for (const Interval owners : ranges_of(q.seq, places_of_ends(mask, q))) {
      if (owners.contains(rank_)) continue;
      const Segment stripe = stripes_.stripe(q.seq, owners.begin);
      const Interval rows = keys_seen(mask, stripe, q, 0, q.len);
      if (rows.size() == 0) continue;
      seen.push_back({owners, rows, stripe.len, joined_before_.size()});
      joined_before_.resize(joined_before_.size() + owners.size());
    }
  }

  // The owners of a sequence, cut at some places, about this rank, and where lengths change.
  std::vector<Interval> ranges_of(int seq, std::vector<int> places) const {
    const int owners = stripes_.owners(seq);
    places.insert(places.end(), {0, rank_, rank_ + 1, stripes_.longer(seq), owners});
    for (int& place : places) place = std::min(place, owners);
    std::ranges::sort(places);
    std::vector<Interval> ranges;
    for (size_t i = 1; i < places.size(); ++i)
      if (places[i - 1] < places[i]) ranges.push_back({places[i - 1], places[i]});
    return ranges;
  }

  void deal_owners() {
    const std::vector<int64_t> rows(rows_.begin(), rows_.end());
    stage_ = stages_of_owners(rank_, rows, static_cast<int>(arrived_.size()));
    for (int hop = 1; hop < ranks_; ++hop) {
      const int owner = (rank_ + hop) % ranks_, stage = stage_[owner];
      if (stage < 0) continue;
      fetched_.owners.push_back({owner, stage, rows_[owner], 0});
      fetched_.stages[stage].messages += messages_[owner];
      fetched_.stages[stage].rows += rows_[owner];
    }
    for (int owner = 0; owner < ranks_; ++owner) {
      if (stage_[owner] < 0) continue;
      if (alike_.empty() || alike_.back().first != stage_[owner])
        alike_.emplace_back(stage_[owner], Interval{owner, owner});
      alike_.back().second.end = owner + 1;
    }
  }

  // --- what arrives: what is seen, and what lies between two runs of an owner that are joined.
  // From the last sequence to the first: joined_behind_ is whether what an owner has behind is
  // joined with what comes next, its seen rows before or any between.

  void add_arrived(int seq, const Segment& q) {
    pieces_.clear();
    int next = 0;  // owner
    for (const Stripes& seen : seen_[seq]) {
      add_between(seq, {next, seen.owners.begin});
      add_seen(seen);
      next = seen.owners.end;
    }
    add_between(seq, {next, stripes_.owners(seq)});
    if (!pieces_.empty()) cut_by_stages(q);
  }

  // Stripes that are not seen arrive whole or not at all.
  void add_between(int seq, Interval owners) {
    check_interrupt(owners.size() / 8 + 1);
    for (int owner = owners.begin; owner < owners.end;) {
      const int end = next_change(joined_behind_, 0, owner, owners.end);
      const int middle = std::clamp(stripes_.longer(seq), owner, end);
      if (joined_behind_[owner]) {
        add_piece({owner, middle}, {0, stripes_.rows(seq, owner)});
        add_piece({middle, end}, {0, stripes_.rows(seq, end - 1)});
      }
      owner = end;
    }
  }

  void add_seen(const Stripes& seen) {
    check_interrupt(int64_t{seen.owners.size()} + 1);
    uint8_t* const behind = joined_behind_.data() + seen.owners.begin;
    const uint8_t* const before = joined_before_.data() + seen.first;
    const int owners = seen.owners.size();
    int* const alone = rows_alone_.data() + seen.owners.begin;
    for (int i = 0; i < owners; ++i)
      alone[i] += (before[i] | behind[i]) != 0 ? 0 : seen.rows.size();
    const bool is_begun = seen.rows.begin == 0, is_ended = seen.rows.end == seen.length;
    for (int i = 0; i < owners;) {
      int end = owners;
      if (!is_begun) end = next_change(joined_before_, seen.first, i, end);
      if (!is_ended) end = next_change(joined_behind_, seen.owners.begin, i, end);
      add_piece(
          {seen.owners.begin + i, seen.owners.begin + end},
          {before[i] != 0 ? 0 : seen.rows.begin, behind[i] != 0 ? seen.length : seen.rows.end});
      i = end;
    }
    std::memcpy(behind, before, owners);
  }

  void add_piece(Interval owners, Interval rows) {
    if (owners.size() == 0) return;
    const bool goes_on = !pieces_.empty() && pieces_.back().owners.end == owners.begin &&
                         pieces_.back().rows == rows;
    if (goes_on)
      pieces_.back().owners.end = owners.end;
    else
      pieces_.push_back({owners, rows});
  }

  void cut_by_stages(const Segment& q) {
    std::vector<std::vector<Stripes>> of_stage(arrived_.size());
    auto alike = alike_.begin();
    for (const Stripes& piece : pieces_) {
      while (alike->second.end <= piece.owners.begin) ++alike;
      for (auto at = alike; at != alike_.end() && at->second.begin < piece.owners.end; ++at)
        of_stage[at->first].push_back({{std::max(piece.owners.begin, at->second.begin),
                                        std::min(piece.owners.end, at->second.end)},
                                       piece.rows});
    }
    for (size_t stage = 0; stage < of_stage.size(); ++stage)
      if (!of_stage[stage].empty()) add_to_stage(static_cast<int>(stage), of_stage[stage], q);
  }

  // Stripes of a row each one behind the other are one run where they may be: of longer ones this
  // rank's are missing.
  void add_to_stage(int stage, std::vector<Stripes>& pieces, const Segment& q) {
    std::ranges::sort(pieces, {}, [this](const Stripes& s) { return first_position(s); });
    const int first = first_position(pieces.front());
    int rows = 0;
    bool is_run = order_ == StackOrder::fewest_segments;
    for (const Stripes& piece : pieces) {
      is_run = is_run && piece.rows.size() == 1 && first_position(piece) == first + rows;
      rows += piece.owners.size();
    }
    is_run = is_run && rows > 1;
    is_joined_[stage] = is_joined_[stage] || is_run;
    arrived_[stage].push_back({q.seq, pieces.front().owners.begin, pieces.back().owners.end - 1});
    if (is_run)
      count(q, {{{q.seq, first, 1, 0, rows}, 1}}, fetched_.stages[stage].counts);
    else
      count(q, keys_of(q, pieces), fetched_.stages[stage].counts);
  }

  int first_position(const Stripes& piece) const {
    return piece.owners.begin + piece.rows.begin * ranks_;
  }

  // --- what is computed with it

  struct Keys {
    Segment segment;
    int alike = 1;  // so many that are met alike
  };

  std::vector<Keys> keys_of(const Segment& q, const std::vector<Stripes>& pieces) const {
    std::vector<Keys> keys;
    if (q.len == 0) return keys;
    const std::vector<int> places = places_of_ends(mask_of(plan_.problem, q.seq), q);
    for (const Stripes& piece : pieces)
      for (int owner = piece.owners.begin; owner < piece.owners.end;) {
        const int place = *std::ranges::upper_bound(places, owner);
        const int end = std::min(place, piece.owners.end);
        const int position = owner + piece.rows.begin * ranks_;
        keys.push_back({{q.seq, position, ranks_, 0, piece.rows.size()}, end - owner});
        owner = end;
      }
    return keys;
  }

  void count(const Segment& q, const std::vector<Keys>& keys, TileCounts& counts) {
    if (q.len == 0) return;
    const SequenceMask mask = mask_of(plan_.problem, q.seq);
    visited_.clear();
    for (const auto& [k, alike] : keys) {
      check_interrupt(64);
      const int64_t pairs = visible_pairs(mask, q, k);
      if (pairs == 0) continue;
      counts.pairs += alike * pairs;
      counts.tiles += alike;
      for_each_block_run(mask, q, k, block_size_, [&, n = alike](const BlockRun& run) {
        counts.blocks += n * run.queries.size() * run.keys;
        counts.partial_blocks += n * run.queries.size() * (run.keys - run.all_seen);
        visited_.push_back(run.queries);
      });
      for_each_seen_run(mask, q, k,
                        [&, n = alike](Interval rows) { counts.rows_needed += n * rows.size(); });
    }
    unite(visited_);
    for (const Interval blocks : visited_) counts.visits += blocks.size();
  }

  // --- what lies together there and not here: messages of several sequences, but for those whose
  // rows are the last of one sequence and the first of the next one that arrives

  void find_apart(int stage) {
    std::vector<std::pair<int, int>> neighbours;  // (owner, the first of two sequences)
    const std::vector<Arrived>& arrived = arrived_[stage];
    for (size_t i = 1; i < arrived.size(); ++i)
      if (arrived[i].last_owner == arrived[i - 1].first_owner)
        neighbours.emplace_back(arrived[i].last_owner, arrived[i].seq);
    std::ranges::sort(neighbours);
    for (Fetched::FromOwner& from : fetched_.owners) {
      if (from.stage != stage) continue;
      const auto own =
          std::ranges::equal_range(neighbours, from.owner, {}, &std::pair<int, int>::first);
      from.apart = from.rows - (own.empty() ? rows_alone_[from.owner] : rows_together(from, own));
      fetched_.stages[stage].apart += from.apart;
    }
  }

  // Rows of the messages of an owner each of whose sequences is a neighbour of the next one.
  template <typename Neighbours>
  int rows_together(const Fetched::FromOwner& from, const Neighbours& neighbours) const {
    int together = 0, begin = 0, end = 0, pieces = 0, joints = 0;
    auto next = neighbours.begin();
    const auto finish = [&] { together += joints == pieces - 1 ? end - begin : 0; };
    int between = 0;  // sequences since the last one that is seen
    for (int seq = 0; seq < stripes_.batch(); ++seq) {
      check_interrupt(16);
      if (from.owner >= stripes_.owners(seq)) continue;
      const auto seen = std::ranges::find_if(
          seen_[seq], [&](const Stripes& s) { return s.owners.contains(from.owner); });
      ++between;
      if (seen == seen_[seq].end()) continue;
      const int first_row = stripes_.first_rows(seq)[from.owner];
      const bool goes_on = joined_before_[seen->first + from.owner - seen->owners.begin] != 0;
      if (goes_on) {
        pieces += between;
      } else {
        finish();
        begin = first_row + seen->rows.begin, pieces = 1, joints = 0;
      }
      for (; next != neighbours.end() && next->second < seq; ++next) joints += goes_on;
      end = first_row + seen->rows.end;
      between = 0;
    }
    finish();
    return together;
  }

  const int rank_, ranks_;
  const Plan& plan_;
  const HomeStripes& stripes_;
  const StackOrder order_;
  const BlockSize block_size_;
  std::vector<std::vector<Stripes>> seen_;         // by sequence, owners rising
  std::vector<uint8_t> joined_before_;             // of what is seen, by owner
  std::vector<uint8_t> joined_behind_;             // by owner
  std::vector<int> rows_, messages_, rows_alone_;  // by owner: fetched; of one sequence each
  std::vector<int> stage_;                         // by owner
  std::vector<std::pair<int, Interval>> alike_;    // stages of ranges of owners
  std::vector<Stripes> pieces_;                    // of the sequence at hand
  std::vector<char> is_joined_;                    // by stage: whether runs are in it
  std::vector<std::vector<Arrived>> arrived_;      // by stage, the last sequence first
  std::vector<Interval> visited_;
  Fetched fetched_;
};

}  // namespace

Fetched fetched_of_stripes(int rank, const Plan& plan, const HomeStripes& stripes, int num_stages,
                           StackOrder order, const BlockSize& block_size) {
  return StripesOfRank(rank, plan, stripes, num_stages, order, block_size).result();
}

}  // namespace ringside
