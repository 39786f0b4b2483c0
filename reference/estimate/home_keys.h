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
  struct Bits {          // of the rows of a segment, in a list of their own: there are millions
    uint32_t first = 0;  // in words of 64 bits; those that do not end in it go on in the next layer
    int rows = 0;
  };

  // Whether the homes of a plan are such: runs, none of which simply goes on as the next one.
  static bool are_runs(const Plan& plan);

  explicit HomeKeys(const Plan& plan);

  Interval of_sequence(int seq) const { return {begin_[seq], begin_[seq + 1]}; }
  const Segment& segment(int i) const { return keys_[i]; }
  int owner(int i) const { return owners_[i]; }
  int place(int owner, int segment) const {
    return places_[owner][segment];
  }                                          // of a home's segment
  int segment_at(int owner, int row) const;  // of a home

  // The longest run of keys from one on, before `end`, whose owners rise or fall one by one or in
  // greater steps, and which of the two.
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
  const Bits& bits(int i) const { return bits_[i]; }
  std::span<const Bits> bits(Interval keys) const {
    return std::span(bits_).subspan(keys.begin, keys.size());
  }

 private:
  void lay_out_words(const Plan& plan);
  void find_stretches();
  int first_from(int seq, int position) const;
  int first_beyond(int seq, int position) const;

  std::vector<Segment> keys_;
  std::vector<int> owners_, begin_;
  std::vector<Bits> bits_;
  std::vector<int> layers_, column_;  // by owner
  std::vector<int64_t> first_of_layer_;
  std::vector<Stretch> stretches_;  // all keys, one behind the other
  std::vector<std::vector<int>> places_;
  std::vector<const Shard*> homes_;
  std::vector<std::vector<int>> segment_of_word_;  // [owner][layers + 1] of its first row
};

}  // namespace ringside
