// Moves whole rows, whatever they hold, as runs of bytes at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringside::thd {

struct RowCopy {  // rows from, from+1, ... of the source become rows to, to+1, ... of the target
  int64_t from = 0, to = 0, rows = 0;
  bool operator==(const RowCopy&) const = default;
};
using RowCopies = std::vector<RowCopy>;  // targets must not overlap

// Joins the last copy where it simply goes on.
void append(RowCopies& copies, const RowCopy& next);

RowCopies inverse(RowCopies copies);

struct RowBuffers {
  const std::byte* source;
  std::byte* target;  // must not overlap the source
  int64_t row_bytes;
};

// Large copies are spread over all cores.
void copy_rows(const RowCopies& copies, const RowBuffers& buffers);

}  // namespace ringside::thd
