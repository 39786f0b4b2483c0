// One varlen entry of a step: consecutive query rows, consecutive key rows, one window.
//
// A query row sees ONE interval of key rows, and both ends of it move by 0 or 1 from a row to the
// next wherever nothing is cut. FlashAttention's bottom-right window over sq query and sk key rows,
//   row i sees row j   iff   i + sk - sq - left <= j <= i + sk - sq + right,
// can say exactly this: a lower end that rests and then moves, an upper end that moves and then
// rests. An entry is a stretch of rows of that shape, its rectangle as small as possible; so left
// and right are never negative, and -1 keeps its meaning: that side hides nothing. Integers only,
// nothing from std: device code includes this file too.
#pragma once

#include "reference/rows/mask.h"
#include "reference/thd/dual_chunk.h"

namespace ringside::thd {

// `len` query rows, each seeing something, over which each end of the interval rests or moves.
struct QueryRun {
  int row = 0, len = 0;
  Interval first, last;  // the key rows that the first and the last of them see
};

struct StepEntry {
  int q_row = 0, q_len = 0, kv_row = 0, kv_len = 0;
  int lo_moves = 0, hi_moves = 0;  // by how many rows each end moves from the first to the last row

  RINGSIDE_HD static StepEntry of(const QueryRun& run) {
    return {run.row,
            run.len,
            run.first.begin,
            run.last.end - run.first.begin,
            run.last.begin - run.first.begin,
            run.last.end - run.first.end};
  }

  // The lower end moves in the last lo_moves rows, the upper end in the first hi_moves.
  RINGSIDE_HD int window_left() const { return lo_moves == 0 ? kUnbounded : kv_len - 1 - lo_moves; }
  RINGSIDE_HD int window_right() const { return hi_moves == 0 ? kUnbounded : q_len - 1 - hi_moves; }

  // Takes in the rows that follow, if one window can still say it all.
  RINGSIDE_HD bool extend(const QueryRun& next) {
    const int lo_step = next.first.begin - (kv_row + lo_moves);
    const int hi_step = next.first.end - (kv_row + kv_len);
    const int lo_inner = next.last.begin - next.first.begin;
    const int hi_inner = next.last.end - next.first.end;
    if (next.row != q_row + q_len) return false;
    if (lo_step < 0 || lo_step > 1 || hi_step < 0 || hi_step > 1) return false;
    const bool lo_must_move = lo_moves > 0 || lo_step == 1;
    if (lo_must_move && lo_step + lo_inner != next.len) return false;
    const bool hi_must_rest = hi_moves < q_len - 1 || hi_step == 0;
    if (hi_must_rest && hi_step + hi_inner != 0) return false;
    q_len += next.len;
    kv_len += hi_step + hi_inner;
    lo_moves += lo_step + lo_inner;
    hi_moves += hi_step + hi_inner;
    return true;
  }
};

// One sequence of a step: which of its positions lie in the two buffers, and what the mask shows.
// EntryWalk goes through its entries.
struct StepSequence {
  Mask mask;
  int len_q = 0, len_k = 0;  // valid tokens
  Runs q, kv;

  RINGSIDE_HD Interval kv_rows_seen_by(int q_position) const {
    const Interval seen = mask.visible(q_position, len_q, len_k);
    return {kv.row + kv.rows_below(seen.begin), kv.row + kv.rows_below(seen.end)};
  }

  // A stretch of query positions from `begin` on, before `end`, over which neither end of the
  // interval changes between resting and moving. An empty `first` means that none of it sees a key.
  RINGSIDE_HD QueryRun query_run(int begin, int end) const {
    const int places[] = {0, len_k, kv.first.begin, kv.first.end, kv.second.begin, kv.second.end};
    const int64_t stop = mask.next_change(begin, len_q, len_k, places);
    int len = static_cast<int>(stop < end ? stop : end) - begin;
    Interval first = kv_rows_seen_by(begin);
    if (first.size() == 0 && kv_rows_seen_by(begin + len - 1).size() > 0) len = 1;
    return {q.row + q.rows_below(begin), len, first, kv_rows_seen_by(begin + len - 1)};
  }

  // The entry of a sequence that has one (see has_one_entry), in closed form.
  RINGSIDE_HD StepEntry only_entry() const {
    const Interval rows = q_rows_that_see();
    if (rows.size() <= 0) return {q.row, 0, kv.row, 0};
    return StepEntry::of({q.row + rows.begin, rows.size(),
                          kv_rows_seen_by(q.position_at(rows.begin)),
                          kv_rows_seen_by(q.position_at(rows.end - 1))});
  }

 private:
  // Rows of q, counted from its first, without chunks: those that do not end before the first
  // resident key, nor begin behind the last one.
  RINGSIDE_HD Interval q_rows_that_see() const {
    const int first_key = kv.first.size() > 0 ? kv.first.begin : kv.second.begin;
    const int keys = kv.rows_below(len_k);
    if (keys == 0) return {};
    const int last_key = kv.position_at(keys - 1);
    return {q.rows_below(mask.seeing(first_key, len_q, len_k).begin),
            q.rows_below(mask.seeing(last_key, len_q, len_k).end)};
  }
};

// The entries of a sequence in row order: at least one, empty if nothing is seen.
class EntryWalk {
 public:
  RINGSIDE_HD explicit EntryWalk(const StepSequence& s)
      : s_(s), position_(s.q.first.begin), entry_{s.q.row, 0, s.kv.row, 0} {}

  RINGSIDE_HD bool next(StepEntry& entry) {
    while (run_ < 2) {
      const int run_end = run_ == 0 ? s_.q.first.end : s_.q.second.end;
      const int end = run_end < s_.len_q ? run_end : s_.len_q;
      if (position_ >= end) {
        ++run_;
        position_ = s_.q.second.begin;
        continue;
      }
      const QueryRun rows = s_.query_run(position_, end);
      position_ += rows.len;
      if (rows.first.size() == 0 || (entry_.q_len > 0 && entry_.extend(rows))) continue;
      entry = entry_;
      entry_ = StepEntry::of(rows);
      if (entry.q_len > 0) return true;
    }
    entry = entry_;
    return run_++ == 2;
  }

 private:
  StepSequence s_;
  int run_ = 0, position_;
  StepEntry entry_;  // begun, perhaps not at its end
};

enum class Keys { gathered, of_a_rank };

// Whether every sequence of a step has one entry: the upper end of what a query sees may not rest
// at the gap between a rank's two runs and go on behind it, nor may the lower end.
RINGSIDE_HD inline bool has_one_entry(const Mask& mask, Keys keys, bool equal_layouts) {
  if (keys == Keys::gathered) return mask.is_one_window();
  if (!mask.hides_none_before()) return false;
  return mask.hides_none_behind() || (mask.ends_at_the_query() && equal_layouts);
}

// How many entries `batch` sequences with `rows` query rows in all can have at most. The ends of a
// window begin to move or to rest at 6 places each, or at 3 in each attention chunk; a query run
// begins at 2. But every entry except a sequence's empty one has a row.
RINGSIDE_HD inline int64_t most_entries(const Mask& mask, Keys keys, bool equal_layouts,
                                        int64_t batch, int64_t rows) {
  if (has_one_entry(mask, keys, equal_layouts)) return batch;
  const int64_t by_places = 14 * batch + 3 * mask.most_windows(2 * batch, rows);
  return by_places < batch + rows ? by_places : batch + rows;
}

}  // namespace ringside::thd
