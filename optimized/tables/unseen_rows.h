// Rows that no attention kernel writes: padding, rows behind the last sequence, and rows whose mask
// hides everything. Where kernels write final results, these rows are zeroed apart.
#pragma once

#include <cstdint>

#include "optimized/tables/search.h"
#include "reference/host_device.h"
#include "reference/mask.h"
#include "reference/packed_layout.h"

namespace ringside {

struct RowsOfLayout {  // [batch+1] each, host or device memory
  const int32_t *cu_seqlens = nullptr, *cu_seqlens_padded = nullptr;
  int batch = 0;

  RINGSIDE_HD int len(int seq) const { return cu_seqlens[seq + 1] - cu_seqlens[seq]; }

  // The sequence of a row; batch, if it lies behind the last.
  RINGSIDE_HD int sequence_of(int row) const {
    return first_where(0, batch, [&](int s) { return cu_seqlens_padded[s + 1] > row; });
  }
};

struct UnseenRows {
  RowsOfLayout q, k;
  Mask mask;

  RINGSIDE_HD bool query(int row) const {
    const int seq = q.sequence_of(row);
    if (seq == q.batch) return true;
    const int position = row - q.cu_seqlens_padded[seq];
    return mask.visible(position, q.len(seq), k.len(seq)).size() == 0;  // padding sees nothing
  }

  RINGSIDE_HD bool key(int row) const {
    const int seq = k.sequence_of(row);
    if (seq == k.batch) return true;
    const int position = row - k.cu_seqlens_padded[seq];
    return mask.seeing(position, q.len(seq), k.len(seq)).size() == 0;
  }
};

// Whether there are none, whatever the mask: no padding, and each query stands at a key of its own.
inline bool every_row_sees_itself(const PackedLayout& q, const PackedLayout& k) {
  return q.cu_seqlens() == k.cu_seqlens() && q.cu_seqlens() == q.cu_seqlens_padded() &&
         k.cu_seqlens() == k.cu_seqlens_padded();
}

}  // namespace ringside
