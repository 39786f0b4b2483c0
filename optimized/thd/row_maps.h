// Which row goes where, one row at a time, for any values in the offsets.
//
// A map numbers its moves from 0 to num_moves - 1. find(i, lo, hi) names the sequence (or segment)
// of move i, which lies between those of earlier and later moves: kernels look it up once for the
// ends of a tile. move(i, lo, hi) is the move itself, none where i belongs to no sequence or a row
// would lie outside its array. Device code includes this file too.
#pragma once

#include "optimized/thd/offsets.h"
#include "reference/thd/dual_chunk.h"

namespace ringside::thd {

struct RowMove {
  int from = -1, to = -1;
  RINGSIDE_HD bool any() const { return from >= 0; }
  bool operator==(const RowMove&) const = default;
};

// Where each rank's rows of each sequence begin in rank order. Where 2*cp_size divides every length
// there are closed forms; else a table is built on the device, as nobody else has seen the lengths.
struct RankRows {
  const int32_t* table = nullptr;  // whether it is needed; then [cp_size, batch] rows
  int num_rows = 0, cp_size = 1, batch = 0;

  RINGSIDE_HD static int64_t table_size(int64_t cp_size, int64_t batch) {
    return 1 + cp_size * batch;
  }

  // Of position p of sequence s, which has n > p rows from row `begin` on.
  RINGSIDE_HD int64_t row(int s, int begin, int n, int p) const {
    if (table[0] == 0) return row_of_equal_chunks(begin, n, p);
    const Slot slot = DualChunk{n, cp_size}.slot(p);
    return int64_t{table[1 + int64_t{slot.rank} * batch + s]} + slot.row;
  }

  RINGSIDE_HD int64_t row_of_equal_chunks(int begin, int n, int p) const {
    const int len = n / (2 * cp_size) > 0 ? n / (2 * cp_size) : 1;
    const int c = p / len, rank = c < cp_size ? c : 2 * cp_size - 1 - c;
    return int64_t{rank} * (num_rows / cp_size) + begin / cp_size + (c < cp_size ? 0 : len) +
           (p - c * len);
  }
};

// Sequence order to rank order, or back.
struct ReorderMap {
  DeviceOffsets starts;
  RankRows rank_rows;
  bool to_ranks = true;

  RINGSIDE_HD int num_moves() const { return rank_rows.num_rows; }
  RINGSIDE_HD int last() const { return starts.batch() - 1; }
  RINGSIDE_HD int64_t first_move(int s) const { return starts[s]; }

  RINGSIDE_HD RowMove move(int i, int lo, int hi) const {
    const int s = last_at_or_before(starts, i, lo, hi);
    const int64_t begin = starts[s], p = i - begin;
    const int n = starts.length(s, num_moves());
    if (p < 0 || p >= n) return {};
    const int64_t row = rank_rows.row(s, static_cast<int>(begin), n, static_cast<int>(p));
    if (row < 0 || row >= num_moves()) return {};
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
    const int64_t p = i - starts[s];
    if (p < 0 || p >= valid.length(s, starts.length(s, num_rows))) return {};
    return {i, i};
  }
};

// Rows from_row, from_row + from_step, ... become rows to_row, to_row + to_step, ...
struct SegmentMap {
  const void* table = nullptr;     // [segments, 5]: from_row, from_step, to_row, to_step, rows
  const int64_t* first = nullptr;  // [segments + 1] sums of rows
  int segments = 0;
  bool wide = false;  // int64, else int32
  int from_rows = 0, to_rows = 0;

  enum Column { kFromRow, kFromStep, kToRow, kToStep, kRows, kColumns };
  RINGSIDE_HD int64_t at(int segment, Column column) const {
    const int64_t i = int64_t{segment} * kColumns + column;
    return wide ? static_cast<const int64_t*>(table)[i] : static_cast<const int32_t*>(table)[i];
  }

  // No row is written twice, so that there are no more moves than rows to write.
  RINGSIDE_HD int num_moves() const { return to_rows; }
  RINGSIDE_HD int last() const { return segments - 1; }
  RINGSIDE_HD int64_t first_move(int segment) const { return first[segment]; }

  RINGSIDE_HD RowMove move(int i, int lo, int hi) const {
    const int s = last_at_or_before(first, i, lo, hi);
    const int64_t k = i - first[s];
    if (k < 0 || i >= first[s + 1]) return {};
    const int64_t from = at(s, kFromRow) + k * at(s, kFromStep);
    const int64_t to = at(s, kToRow) + k * at(s, kToStep);
    if (from < 0 || from >= from_rows || to < 0 || to >= to_rows) return {};
    return {static_cast<int>(from), static_cast<int>(to)};
  }
};

}  // namespace ringside::thd
