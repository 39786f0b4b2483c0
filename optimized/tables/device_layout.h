// Where the sequences of a packed array lie, as device memory has it: cu_seqlens, read where they
// lie. What PackedLayout is on the host.
//
// Nobody has checked these values: whoever uses them must stay inside its buffers whatever they
// are. Integers only, nothing from std: device code includes this file too.
#pragma once

#include <cstdint>

#include "optimized/tables/search.h"
#include "reference/support/host_device.h"

namespace ringside {

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

  // The entry of any i >= 0, as if empty sequences followed the last; 0, if there are none at all.
  RINGSIDE_HD int going_on(int i) const {
    return batch() <= 0 ? 0 : (*this)[i < batch() ? i : batch()];
  }
};

struct DeviceLayout {
  DeviceOffsets valid, padded;  // cu_seqlens, cu_seqlens_padded
  int num_rows = 0;             // no sequence is longer

  RINGSIDE_HD int batch() const { return padded.batch(); }
  RINGSIDE_HD int rows(int s) const { return padded.length(s, num_rows); }
  RINGSIDE_HD int tokens(int s) const { return valid.length(s, rows(s)); }

  // The sequence of a row; batch, if it lies behind the last.
  RINGSIDE_HD int sequence_of(int row) const {
    return first_where(0, batch(), [&](int s) { return padded[s + 1] > row; });
  }
};

}  // namespace ringside
