// Where rows of one buffer lie in another that holds the same positions: every row knows its
// position, so a message that lands in many places needs no list of them. Asked by segments, never
// by rows, where the strides of one buffer are multiples of the other's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reference/rows/segment.h"

namespace ringside {

// Row from + i*from_step of one buffer is row to + i*to_step of another.
struct RowRun {
  int from = 0, to = 0, rows = 0;
  int from_step = 1, to_step = 1;

  RowRun transposed() const { return {to, from, rows, to_step, from_step}; }
  bool operator==(const RowRun&) const = default;
};

int64_t rows_of(std::span<const RowRun> runs);

// Whether they are consecutive rows of both buffers.
inline bool is_one_block(std::span<const RowRun> runs) {
  return runs.size() == 1 && runs[0].from_step == 1 && runs[0].to_step == 1;
}

class RowPlaces {
 public:
  explicit RowPlaces(Shard to);

  // Of rows [rows.begin, rows.end) of a buffer, in their order and in steps of one; rows whose
  // positions are not here are left out.
  std::vector<RowRun> runs(const Shard& from, Interval rows) const;
  // Where a buffer's rows begin if they lie here as they are, one below the other; else -1. None
  // lie at 0.
  int block_of(const Shard& from) const;

 private:
  template <typename Visit>  // visit(run) until it returns false
  void for_each_piece(const Shard& from, Interval rows, Visit visit) const;
  const Segment* find(int seq, int position) const;
  int first_behind(const Segment& s, int i) const;

  Shard segments_;                            // by sequence, stride, residue and position
  std::vector<std::pair<int, int>> strides_;  // (sequence, stride), each once, rising
};

}  // namespace ringside
