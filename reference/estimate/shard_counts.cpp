#include "reference/estimate/shard_counts.h"

#include <algorithm>
#include <mutex>

#include "reference/estimate/sorted_keys.h"
#include "reference/interrupt.h"
#include "reference/parallel.h"
#include "reference/tiles.h"

namespace ringside {
namespace {

struct Part {  // of a segment of keys or of query blocks, by index
  int index;
  Interval rows;
};

// Calls visit(index, number of rows) with the rows of all parts of each index, each row once.
template <typename Visit>
void for_each_union(std::vector<Part>& parts, Visit visit) {
  std::ranges::sort(parts, {}, [](const Part& p) { return std::pair(p.index, p.rows.begin); });
  for (size_t i = 0; i < parts.size();) {
    const int index = parts[i].index;
    int64_t rows = 0;
    int end = 0;
    for (; i < parts.size() && parts[i].index == index; ++i) {
      rows += std::max(0, parts[i].rows.end - std::max(end, parts[i].rows.begin));
      end = std::max(end, parts[i].rows.end);
    }
    visit(index, rows);
  }
  parts.clear();
}

// What the queries of one shard meet, into one line of counts.
class Line {
 public:
  Line(const Problem& problem, const SortedKeys& keys, size_t num_k, const BlockSize& size)
      : problem_(problem), keys_(keys), size_(size), cells_(num_k) {
    if (num_k > 1) {
      visited_.assign(num_k, -1);
      seen_.assign(keys.most_of_sequence(), -1);
    }
  }

  // All query segments of the shard that belong to one sequence.
  void add(std::span<const Segment> queries) {
    first_key_ = keys_.of_sequence(queries.front().seq).begin;
    for (Segment q : queries) {
      const SequenceMask mask = mask_of(problem_, q.seq);
      q.len = q.rows_below(mask.len_q);
      if (q.len > 0) add(mask, q);
    }
    finish_sequence();
  }

  const std::vector<TileCounts>& cells() const { return cells_; }

 private:
  void add(const SequenceMask& mask, const Segment& q) {
    ++query_;
    Interval some = keys_.of_sequence(q.seq), all{some.begin, some.begin};
    if (keys_.are_runs(q.seq)) {
      const Interval first = mask.visible(q.pos), last = mask.visible(q.position(q.len - 1));
      some = keys_.meeting(q.seq, {first.begin, last.end});
      all = keys_.inside(q.seq, {last.begin, first.end});
      if (all.size() == 0 || some.size() <= 0) all = {some.begin, some.begin};
    }
    check_interrupt(64);
    add_seen_whole(q, all);
    for (int k = some.begin; k < all.begin; ++k) add_partly(mask, q, k);
    for (int k = all.end; k < some.end; ++k) add_partly(mask, q, k);
    for_each_union(visits_, [this](int shard, int64_t blocks) { cells_[shard].visits += blocks; });
  }

  void add_seen_whole(const Segment& q, Interval keys) {
    if (keys.size() == 0) return;
    const int64_t blocks = num_blocks(q.len, size_.q);
    if (cells_.size() == 1) return add_to_only_shard(q, keys, blocks);
    check_interrupt(4 * int64_t{keys.size()});
    for (int i = keys.begin; i < keys.end; ++i) {
      const KeySegment& k = keys_[i];
      TileCounts& cell = cells_[k.shard];
      cell.pairs += int64_t{q.len} * k.segment.len;
      cell.blocks += blocks * k.blocks;
      ++cell.tiles;
      cell.visits += visited_[k.shard] == query_ ? 0 : blocks;
      visited_[k.shard] = query_;
      cell.rows_needed += seen_[i - first_key_] == sequence_ ? 0 : k.segment.len;
      seen_[i - first_key_] = sequence_;
    }
  }

  void add_to_only_shard(const Segment& q, Interval keys, int64_t blocks) {
    TileCounts& cell = cells_[0];
    cell.pairs += q.len * keys_.rows(keys);
    cell.blocks += blocks * keys_.blocks(keys);
    cell.tiles += keys.size();
    visits_.push_back({0, {0, static_cast<int>(blocks)}});
    seen_whole_.push_back(keys);
  }

  void add_partly(const SequenceMask& mask, const Segment& q, int index) {
    const KeySegment& k = keys_[index];
    check_interrupt(64);
    const int64_t pairs = visible_pairs(mask, q, k.segment);
    if (pairs == 0) return;
    TileCounts& cell = cells_[k.shard];
    cell.pairs += pairs;
    ++cell.tiles;
    const bool is_visited = !visited_.empty() && visited_[k.shard] == query_;
    for_each_block_run(mask, q, k.segment, size_, [&](const BlockRun& run) {
      cell.blocks += run.queries.size() * run.keys;
      cell.partial_blocks += run.queries.size() * (run.keys - run.all_seen);
      if (!is_visited) visits_.push_back({k.shard, run.queries});
    });
    for_each_seen_run(mask, q, k.segment, [&](Interval run) {
      seen_partly_.push_back({index, run});
    });
  }

  void finish_sequence() {
    unite(seen_whole_);
    for (const Interval keys : seen_whole_) cells_[0].rows_needed += keys_.rows(keys);
    for_each_union(seen_partly_, [this](int index, int64_t rows) {
      if (!is_seen_whole(index)) cells_[keys_[index].shard].rows_needed += rows;
    });
    seen_whole_.clear();
    ++sequence_;
  }

  bool is_seen_whole(int index) const {
    if (!seen_.empty()) return seen_[index - first_key_] == sequence_;
    const auto behind = std::ranges::upper_bound(seen_whole_, index, {}, &Interval::begin);
    return behind != seen_whole_.begin() && (behind - 1)->contains(index);
  }

  const Problem& problem_;
  const SortedKeys& keys_;
  const BlockSize size_;
  std::vector<TileCounts> cells_;  // [k shards]
  int query_ = 0, sequence_ = 0;   // how many there were before
  std::vector<int> visited_;       // [k shards] the last query segment that saw a segment whole
  int first_key_ = 0;              // of the sequence
  std::vector<int>
      seen_;  // by key of the sequence: the last sequence in which a query saw it whole
  std::vector<Interval> seen_whole_;  // ranges of keys, instead, where there is one shard of them
  std::vector<Part> visits_;          // of one query segment, by shard: its blocks
  std::vector<Part> seen_partly_;     // of one sequence, by key segment: its rows
};

void add(TileCounts& sum, const TileCounts& counts) {
  sum.pairs += counts.pairs;
  sum.blocks += counts.blocks;
  sum.partial_blocks += counts.partial_blocks;
  sum.visits += counts.visits;
  sum.tiles += counts.tiles;
  sum.rows_needed += counts.rows_needed;
}

Shard by_sequence(const Shard& shard) {
  Shard sorted = shard;
  std::ranges::stable_sort(sorted, {}, &Segment::seq);
  return sorted;
}

}  // namespace

ShardCounts::ShardCounts(const Problem& problem, std::vector<const Shard*> q,
                         std::vector<const Shard*> k, const BlockSize& block_size)
    : num_k_(k.size()), cells_(q.size() * k.size()) {
  const SortedKeys keys(problem, k, block_size.k);
  const int shards = static_cast<int>(q.size());
  const int parts = shards < 64 ? 16 : 1;  // of a shard's sequences: few shards are cut for threads
  std::mutex adding;
  parallel_for(shards * parts, [&](int item) {
    const int shard = item / parts, part = item % parts;
    const Shard queries = by_sequence(*q[shard]);
    Line line(problem, keys, num_k_, block_size);
    for (auto first = queries.begin(); first != queries.end();) {
      const auto behind = std::find_if(
          first, queries.end(), [seq = first->seq](const Segment& s) { return s.seq != seq; });
      if (first->seq % parts == part) line.add({first, behind});
      first = behind;
    }
    const std::lock_guard lock(adding);
    for (size_t i = 0; i < num_k_; ++i) add(cells_[shard * num_k_ + i], line.cells()[i]);
  });
}

}  // namespace ringside
