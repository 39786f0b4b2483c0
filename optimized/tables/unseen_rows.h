// Rows that no attention kernel writes: padding, rows behind the last sequence, and rows whose mask
// hides everything. Where kernels write final results, these rows are zeroed apart.
#pragma once

#include <cstdint>

#include "optimized/tables/device_layout.h"
#include "reference/rows/mask.h"
#include "reference/rows/packed_layout.h"
#include "reference/support/host_device.h"

namespace ringside {

struct UnseenRows {
  DeviceLayout q, k;  // whose lengths somebody has checked
  Mask mask;

  // Whether a row of queries is a token, not padding.
  RINGSIDE_HD bool is_query(int row) const {
    const int seq = q.sequence_of(row);
    return seq != q.batch() && row - q.padded[seq] < q.tokens(seq);
  }

  RINGSIDE_HD bool query(int row) const {
    const int seq = q.sequence_of(row);
    if (seq == q.batch()) return true;
    const int position = row - q.padded[seq];
    // Padding sees nothing.
    return mask.visible(position, q.tokens(seq), k.tokens(seq)).size() == 0;
  }

  RINGSIDE_HD bool key(int row) const {
    const int seq = k.sequence_of(row);
    if (seq == k.batch()) return true;
    const int position = row - k.padded[seq];
    return mask.seeing(position, q.tokens(seq), k.tokens(seq)).size() == 0;
  }
};

// Whether there are none, whatever the mask: no padding, and each query stands at a key of its own.
inline bool every_row_sees_itself(const PackedLayout& q, const PackedLayout& k) {
  return q.cu_seqlens() == k.cu_seqlens() && q.cu_seqlens() == q.cu_seqlens_padded() &&
         k.cu_seqlens() == k.cu_seqlens_padded();
}

}  // namespace ringside
