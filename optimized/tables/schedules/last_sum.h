// What a schedule adds last to the gradients of a rank's own keys: whoever takes these from the
// sums to the caller's arrays may add it on the way, instead of writing sums that are read once
// more. What is added may be a sum itself, of rows that arrived one after the other; then these are
// read where they lie.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/schedule/schedule.h"

namespace ringside {

struct LastSum {
  struct Term {                   // of the sum that is added
    int operation = -1;           // of the schedule, which would add it
    std::vector<int32_t> row_of;  // of each row of the home sums; kNobody: none
  };
  int operation = -1;            // of the schedule, none: -1
  std::vector<int32_t> from_of;  // of each row of the home sums, what is added; kNobody: nothing
  std::vector<Term> terms;       // what that is still to get, in order: kMostTermsAtEnd at most
  int cleared = -1;              // without them it is 0, and this operation made it so
};

// Of a backward pass. The operations add rows of all heads, and nothing behind them touches the
// sums or the memory that they add from.
LastSum last_sum(const Schedule& schedule);

}  // namespace ringside
