// What a schedule adds last to the gradients of a rank's own keys: whoever takes these from the
// sums to the caller's arrays may add it on the way, instead of writing sums that are read once
// more.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/schedule/schedule.h"

namespace ringside {

struct LastSum {
  int operation = -1;            // of the schedule, none: -1
  std::vector<int32_t> from_of;  // of each row of the home sums, what is added; kNobody: nothing
};

// Of a backward pass. The operation adds rows of all heads, and nothing behind it touches the sums
// or the memory that it adds from.
LastSum last_sum(const Schedule& schedule);

}  // namespace ringside
