// Searches in offsets that nobody has checked: every one ends and returns an index in range, sorted
// or not. Device code includes this file too.
#pragma once

#include <cstdint>

#include "optimized/tables/device_layout.h"
#include "optimized/tables/search.h"
#include "reference/support/host_device.h"

namespace ringside::thd {

// The last i in [lo, hi] with offsets[i] <= row; lo if there is none. With rows between lo and hi
// it is the sequence that holds the row: empty sequences come before it.
template <typename Values>
RINGSIDE_HD int last_at_or_before(const Values& offsets, int64_t row, int lo, int hi) {
  return first_where(lo + 1, hi + 1, [&](int i) { return offsets[i] > row; }) - 1;
}

}  // namespace ringside::thd
