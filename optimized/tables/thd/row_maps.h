// Which row goes where, one row at a time, for any values in the offsets.
//
// A map numbers its moves from 0 to num_moves - 1. move(i, lo, hi) is one of them, of a sequence
// (or segment) from lo to hi: kernels look up those of the ends of a tile, between which all others
// lie. It is none where i belongs to no sequence or a row would lie outside its array.
//
// Maps may need a table of sums over the sequences before each, filled in on the device as nobody
// else has seen the lengths: entry (row, c) is the sum over all columns k of term(row, k, k < c).
// Device code includes this file too.
#pragma once

#include "optimized/tables/thd/dual_chunks.h"
#include "optimized/tables/thd/offsets.h"

namespace ringside::thd {

struct RowMove {
  int from = -1, to = -1;
  RINGSIDE_HD bool any() const { return from >= 0; }
  bool operator==(const RowMove&) const = default;
};

// Sequence order to rank order, or back. The table holds, for each rank and sequence, the row in
// rank order where the rank's rows of the sequence begin.
struct ReorderMap {
  using Sum = uint32_t;  // wraps around where offsets mean nothing

  DeviceOffsets starts;
  DualChunks chunks = 1;
  int num_rows = 0;
  bool to_ranks = true;
  const Sum* table = nullptr;  // [cp_size, batch]

  RINGSIDE_HD int table_rows() const { return chunks.cp_size; }
  RINGSIDE_HD int table_columns() const { return starts.batch(); }
  // All that earlier ranks hold lies before it, and what its own rank holds of earlier sequences.
  RINGSIDE_HD Sum term(int rank, int s, bool before) const {
    const int n = starts.length(s, num_rows);
    return static_cast<Sum>(chunks.rows_before(n, rank + (before ? 1 : 0)));
  }

  RINGSIDE_HD int num_moves() const { return num_rows; }
  RINGSIDE_HD int last() const { return starts.batch() - 1; }
  RINGSIDE_HD int64_t first_move(int s) const { return starts[s]; }

  RINGSIDE_HD RowMove move(int i, int lo, int hi) const {
    const int s = last_at_or_before(starts, i, lo, hi);
    const int64_t p = int64_t{i} - starts[s];
    const int n = starts.length(s, num_rows);
    if (p < 0 || p >= n) return {};
    const Slot slot = chunks.slot(n, static_cast<int>(p));
    const int64_t row = table[int64_t{slot.rank} * table_columns() + s] + int64_t{slot.row};
    if (row >= num_rows) return {};
    const int other = static_cast<int>(row);
    return to_ranks ? RowMove{i, other} : RowMove{other, i};
  }
};

// The valid rows of each sequence, to the same rows of another array.
struct ValidRowMap {
  DeviceOffsets starts, valid;  // cu_seqlens_padded, cu_seqlens
  int num_rows = 0;

  RINGSIDE_HD int num_moves() const { return num_rows; }
  RINGSIDE_HD int last() const { return starts.batch() - 1; }
  RINGSIDE_HD int64_t first_move(int s) const { return starts[s]; }

  RINGSIDE_HD RowMove move(int i, int lo, int hi) const {
    const int s = last_at_or_before(starts, i, lo, hi);
    const int64_t p = int64_t{i} - starts[s];
    if (p < 0 || p >= valid.length(s, starts.length(s, num_rows))) return {};
    return {i, i};
  }
};

// Rows from_row, from_row + from_step, ... become rows to_row, to_row + to_step, ... The table
// holds how many rows earlier segments have.
struct SegmentMap {
  using Sum = int64_t;

  const void* segments = nullptr;  // [num_segments, 5]: from_row, from_step, to_row, to_step, rows
  int num_segments = 0;
  bool wide = false;  // int64, else int32
  int from_rows = 0, to_rows = 0;
  const Sum* table = nullptr;  // [num_segments + 1]

  enum Column { kFromRow, kFromStep, kToRow, kToStep, kRows, kColumns };
  RINGSIDE_HD int64_t at(int segment, Column column) const {
    const int64_t i = int64_t{segment} * kColumns + column;
    return wide ? static_cast<const int64_t*>(segments)[i]
                : static_cast<const int32_t*>(segments)[i];
  }

  RINGSIDE_HD int table_rows() const { return 1; }
  RINGSIDE_HD int table_columns() const { return num_segments + 1; }
  RINGSIDE_HD Sum term(int, int segment, bool before) const {
    if (!before || segment == num_segments) return 0;
    const int64_t rows = at(segment, kRows);
    return rows < 0 ? 0 : rows < to_rows ? rows : to_rows;
  }

  // No row is written twice, so that there are no more moves than rows to write.
  RINGSIDE_HD int num_moves() const { return to_rows; }
  RINGSIDE_HD int last() const { return num_segments - 1; }
  RINGSIDE_HD int64_t first_move(int segment) const { return table[segment]; }

  RINGSIDE_HD RowMove move(int i, int lo, int hi) const {
    const int s = last_at_or_before(table, i, lo, hi);
    if (i < table[s] || i >= table[s + 1]) return {};
    const auto k = static_cast<uint64_t>(i - table[s]);
    const int64_t from = row(at(s, kFromRow), k, at(s, kFromStep));
    const int64_t to = row(at(s, kToRow), k, at(s, kToStep));
    if (from < 0 || from >= from_rows || to < 0 || to >= to_rows) return {};
    return {static_cast<int>(from), static_cast<int>(to)};
  }

 private:
  // Unsigned: steps that mean nothing wrap around.
  RINGSIDE_HD static int64_t row(int64_t first, uint64_t k, int64_t step) {
    return static_cast<int64_t>(static_cast<uint64_t>(first) + k * static_cast<uint64_t>(step));
  }
};

}  // namespace ringside::thd
