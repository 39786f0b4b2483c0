// What the queries of one shard meet, shard of keys by shard of keys.
#pragma once

#include <span>
#include <vector>

#include "reference/estimate/sorted_keys.h"
#include "reference/plan/tile_counts.h"

namespace ringside {

// A union of intervals that is counted while it grows, as long as they touch.
struct Grown {
  int of = -1;  // what it is a union for: of anything else it is empty
  Interval all;

  // By how much it grows; -1, and it stays as it is, where the interval does not touch it.
  int grow(int wanted, Interval interval);
};

struct Part {  // of what is counted apart: an interval that did not touch
  int index;
  Interval interval;
};

struct Spread {  // the same interval for each index of a range
  Interval range, interval;
};

// Where on the key axis, modulo the stride of the queries, an end of what they see may lie, rising:
// keys of that stride between two such places are met alike.
std::vector<int> places_of_ends(const SequenceMask& mask, const Segment& q);

class Line {
 public:
  Line(const Problem& problem, const SortedKeys& keys, size_t num_shards, const BlockSize& size);

  // All segments of the shard of queries that belong to one sequence, which stands for `weight`
  // sequences that are cut alike.
  void add(std::span<const Segment> queries, int weight);
  void finish();  // once all are there

  struct alignas(64) Cell : TileCounts {  // a line of the processor's cache
    Grown visited;                        // blocks of the query segment
  };
  const std::vector<Cell>& cells() const { return cells_; }  // [key shards]

 private:
  struct Met {  // by a query segment, of one key segment
    int64_t pairs = 0, blocks = 0, partial_blocks = 0;
    std::vector<Interval> visited, seen;  // query blocks, key rows
  };

  void add_runs(const SequenceMask& mask, const Segment& q);
  void add_strides(const SequenceMask& mask, const Segment& q, Interval dealt);
  void add_seen_whole(const Segment& q, Interval keys);
  void add_to_only_shard(const Segment& q, Interval keys, int blocks);
  void add_partly(const SequenceMask& mask, const Segment& q, int key);
  void add_alike(const SequenceMask& mask, const Segment& q, Interval keys);
  bool has_cards(int seq) const;
  void add_cards(Interval keys);
  void visit_shards(Interval keys);
  void visit_hands(Interval keys);
  void meet(const SequenceMask& mask, const Segment& q, const Segment& k);
  void add_met(int index);
  void visit(int shard, Interval blocks);
  void see(int index, Interval rows);
  void add_seen_by_ranges();
  void finish_query();
  void finish_sequence();

  const Problem& problem_;
  const SortedKeys& keys_;
  const BlockSize size_;
  std::vector<Cell> cells_;
  int64_t weight_ = 1;
  int query_ = 0, sequence_ = 0, first_key_ = 0;
  bool is_only_query_ = false;  // of its sequence
  bool are_in_hands_ = false;   // its keys are cards, a hand to a shard
  Met met_;
  std::vector<Grown> seen_;            // by key of the sequence: its rows
  std::vector<Part> visits_, sights_;  // what did not touch
  std::vector<TileCounts> cards_;      // [cards + 1] what each counts more than the one before
  std::vector<int64_t> hands_;         // [hands + 1] likewise, visits
  std::vector<Spread> hand_visits_, card_sights_;  // of a query; of a sequence
  // Where there is one shard of keys: those of the sequence that are seen as a whole, by ranges,
  // and each that is seen in part.
  std::vector<Interval> seen_whole_;
  std::vector<int> seen_partly_;
};

}  // namespace ringside
