// What a schedule adds last to the gradients of a rank's own keys: whoever takes these from the
// sums to the caller's arrays may add it on the way, instead of writing sums that are read once
// more. Where what is added is itself a sum of rows that arrived, those rows are read where they
// lie.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/schedule/schedule.h"

namespace ringside {

struct LastSum {
  struct Term {
    int operation = -1;           // of the schedule, which would add it
    bool begins = true;           // a sum that is added at home; else it belongs to the term before
    std::vector<int32_t> row_of;  // of each row of the home sums; kNobody: none
  };
  std::vector<Term> terms;   // in the order of sums: kMostTermsAtEnd at most
  std::vector<int> without;  // more operations that nobody needs then
};

// Of a backward pass. The operations add rows of all heads, and nothing behind them touches the
// sums or the memory that they add from.
LastSum last_sum(const Schedule& schedule);

}  // namespace ringside
