// The segments of many shards, sequence by sequence, in the order of their positions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/plan/plan.h"

namespace ringside {

struct KeySize {  // what most of them are asked for, in a list of its own: there are millions
  int shard = 0, rows = 0, blocks = 0;
};

struct KeySegment {
  Segment segment;  // valid tokens only: none is empty
  int shard = 0;    // where it lies
  int blocks = 0;   // of its rows
};

class SortedKeys {
 public:
  SortedKeys(const PackedLayout& layout, const std::vector<const Shard*>& shards, int block_rows);

  Interval of_sequence(int seq) const { return {begin_[seq], begin_[seq + 1]}; }
  // Whether they are runs of positions, one behind the other.
  bool are_runs(int seq) const { return are_runs_[seq]; }
  // Those that are dealt like cards: each has every n-th token from one of the first n on.
  Interval dealt(int seq) const { return {begin_[seq], begin_[seq] + dealt_[seq]}; }
  // Whether each of them lies in the shard that has this card of all such sequences; some may lack
  // the last cards.
  bool are_cards(int seq) const { return are_cards_[seq]; }
  Interval cards() const { return cards_; }  // the keys of a sequence that lacks none
  // The cards of one shard lie one behind the other: a hand. Whether no shard has two of them, and
  // which hand a card is of, counted from 0.
  bool are_in_hands() const { return are_in_hands_; }
  int hand(int card) const { return hands_[card]; }
  int num_hands() const { return hands_.empty() ? 0 : hands_.back() + 1; }
  // Whether two sequences are cut alike.
  bool are_alike(int a, int b) const;
  size_t hash(int seq) const;
  const KeySegment& operator[](int i) const { return keys_[i]; }
  std::span<const KeySize> sizes_of(Interval keys) const {
    return std::span(sizes_).subspan(keys.begin, keys.size());
  }
  int most_of_sequence() const;  // the largest number that a sequence has
  int64_t rows(Interval keys) const { return rows_before_[keys.end] - rows_before_[keys.begin]; }
  int64_t blocks(Interval keys) const {
    return blocks_before_[keys.end] - blocks_before_[keys.begin];
  }

  // Of a sequence of runs: those that lie inside an interval of positions, and those that meet it.
  Interval inside(int seq, Interval positions) const;
  Interval meeting(int seq, Interval positions) const;
  int first_from(int seq, int position) const;  // that begins at it or behind

 private:
  void sort_sequences(const PackedLayout& layout);
  void add_up();
  void find_cards(size_t num_shards);
  int first_beyond(int seq, int position) const;  // that ends behind it

  std::vector<KeySegment> keys_;
  std::vector<KeySize> sizes_;
  std::vector<int> begin_;  // [sequences + 1]
  std::vector<char> are_runs_;
  std::vector<int> dealt_;
  std::vector<char> are_cards_;
  Interval cards_;
  bool are_in_hands_ = false;
  std::vector<int> hands_;  // of cards
  std::vector<int64_t> rows_before_, blocks_before_;
};

}  // namespace ringside
