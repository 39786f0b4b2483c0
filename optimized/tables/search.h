// The one binary search of tables, on the host and on the device.
#pragma once

#include "reference/support/host_device.h"

namespace ringside {

// The first index in [lo, hi) for which a predicate holds that, once it holds, goes on to; hi if
// there is none, lo if hi < lo. It ends in range whatever the predicate says.
template <typename Predicate>
RINGSIDE_HD int first_where(int lo, int hi, Predicate predicate) {
  while (lo < hi) {
    const int mid = lo + (hi - lo) / 2;
    if (predicate(mid)) {
      hi = mid;
    } else {
      lo = mid + 1;
    }
  }
  return lo;
}

}  // namespace ringside
