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
  struct Bits {  // of the rows of a segment, in a list of their own: there are millions
    uint32_t first = 0;
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
  }  // of a home's segment

  // Those inside an interval of positions, and those that meet it.
  Interval inside(int seq, Interval positions) const;
  Interval meeting(int seq, Interval positions) const;

  // Every row of every home has a bit; those of a home begin with a word.
  int64_t num_words() const { return first_word_.back(); }
  int64_t first_word(int owner) const { return first_word_[owner]; }
  const Bits& bits(int i) const { return bits_[i]; }
  std::span<const Bits> bits(Interval keys) const {
    return std::span(bits_).subspan(keys.begin, keys.size());
  }

 private:
  int first_from(int seq, int position) const;
  int first_beyond(int seq, int position) const;

  std::vector<Segment> keys_;
  std::vector<int> owners_, begin_;
  std::vector<Bits> bits_;
  std::vector<int64_t> first_word_;
  std::vector<std::vector<int>> places_;
};

}  // namespace ringside
