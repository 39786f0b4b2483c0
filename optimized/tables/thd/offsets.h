// cu_seqlens in device memory, read where they lie, and searches in them.
//
// Nobody has checked these values: whoever uses them must stay inside its buffers whatever they
// are. Every search ends and returns an index in range, sorted or not. Integers only, nothing from
// std: device code includes this file too.
#pragma once

#include <cstdint>

#include "optimized/tables/search.h"
#include "reference/host_device.h"

namespace ringside::thd {

struct DeviceOffsets {
  const void* data = nullptr;
  int size = 0;       // batch + 1
  bool wide = false;  // int64, as a cumulative sum yields; else int32

  RINGSIDE_HD int batch() const { return size - 1; }
  RINGSIDE_HD int operator[](int i) const {
    if (!wide) return static_cast<const int32_t*>(data)[i];
    const int64_t row = static_cast<const int64_t*>(data)[i];  // in range if it means anything
    return static_cast<int>(row < INT32_MIN ? INT32_MIN : row > INT32_MAX ? INT32_MAX : row);
  }

  // Of sequence s, between 0 and `most`.
  RINGSIDE_HD int length(int s, int most) const {
    const int64_t difference = int64_t{(*this)[s + 1]} - (*this)[s];
    return static_cast<int>(difference < 0 ? 0 : difference < most ? difference : most);
  }
};

// The last i in [lo, hi] with offsets[i] <= row; lo if there is none. With rows between lo and hi
// it is the sequence that holds the row: empty sequences come before it.
template <typename Values>
RINGSIDE_HD int last_at_or_before(const Values& offsets, int64_t row, int lo, int hi) {
  return first_where(lo + 1, hi + 1, [&](int i) { return offsets[i] > row; }) - 1;
}

}  // namespace ringside::thd
