// All keys where they are at home, in the order of their sequences, padding included: of homes
// whose segments are runs of positions, so that the keys of a sequence lie one behind the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/plan/plan.h"

namespace ringside {

class HomeKeys {
 public:
  // Whether the homes of a plan are such: runs, none of which simply goes on as the next one.
  static bool are_runs(const Plan& plan);

  explicit HomeKeys(const Plan& plan);

  Interval of_sequence(int seq) const { return {begin_[seq], begin_[seq + 1]}; }
  const Segment& segment(int i) const { return keys_[i]; }
  int owner(int i) const { return owners_[i]; }
  // Of a segment of a home; and the segment of a row of a home.
  int place(int owner, int segment) const { return places_[owner][segment]; }
  int segment_at(int owner, int row) const;

  // The longest run of keys from one on, before `end`, whose owners never fall or never rise.
  struct Stretch {
    int end = 0;
    bool rises = true;
  };
  Stretch stretch(int i, int end) const;
  // Inside a stretch: behind those of owners up to one, where they rise, or down to one.
  int behind_owners_to(int last, Interval keys) const;
  int behind_owners_down_to(int first, Interval keys) const;

  // Those inside an interval of positions, and those that meet it.
  Interval inside(int seq, Interval positions) const;
  Interval meeting(int seq, Interval positions) const;

  // Every row of every home has a bit. The first words of all homes come first, then the second
  // ones of those that have such, and so on, layer by layer: keys of neighbouring owners are marked
  // in neighbouring words, whose cache lines are at hand.
  int64_t num_words() const { return first_of_layer_.back(); }
  int num_layers(int owner) const { return layers_[owner]; }
  int64_t word(int owner, int layer) const { return first_of_layer_[layer] + column_[owner]; }
  // Of each word, the next one of the same home, if it has one.
  std::span<const uint32_t> next_words() const { return next_words_; }
  // Of the first rows of keys, and how many there are: those that do not end in that word go on in
  // the next layer.
  std::span<const uint32_t> first_bits(Interval keys) const {
    return std::span(first_bits_).subspan(keys.begin, keys.size());
  }
  std::span<const int> rows(Interval keys) const {
    return std::span(rows_).subspan(keys.begin, keys.size());
  }
  bool are_rows(int seq) const { return are_rows_[seq]; }  // each key of one row

  // What lies between a segment of a home and the one above it, in the order of keys.
  struct Between {
    bool nothing = false;
    int owner = 0, row = 0;  // else the first row of the key that follows the one above
  };
  const Between& between(int owner, int segment) const { return between_[owner][segment]; }

 private:
  void lay_out_words(const Plan& plan);
  void find_stretches();
  void find_between();
  int first_from(int seq, int position) const;
  int first_beyond(int seq, int position) const;

  std::vector<Segment> keys_;
  std::vector<int> owners_, begin_;
  std::vector<uint32_t> first_bits_;  // in lists of their own: there are millions
  std::vector<int> rows_;
  std::vector<char> are_rows_;
  std::vector<int> layers_, column_;  // by owner
  std::vector<int64_t> first_of_layer_;
  std::vector<uint32_t> next_words_;
  std::vector<Stretch> stretches_;  // all keys, one behind the other
  std::vector<std::vector<int>> places_;
  std::vector<std::vector<Between>> between_;
  std::vector<const Shard*> homes_;
  std::vector<std::vector<int>> segment_of_word_;  // [owner][layers + 1] of its first row
};

}  // namespace ringside
