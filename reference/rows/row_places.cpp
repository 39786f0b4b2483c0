#include "reference/rows/row_places.h"

#include <algorithm>
#include <tuple>

#include "reference/support/interrupt.h"

namespace ringside {
namespace {

auto place_of(const Segment& s) { return std::tuple(s.seq, s.stride, s.pos % s.stride, s.pos); }

// Adds `run` to `last` where it simply goes on.
bool join(RowRun& last, const RowRun& run) {
  if (last.to_step != run.to_step || last.from + last.rows != run.from ||
      last.to + last.rows * last.to_step != run.to)
    return false;
  last.rows += run.rows;
  return true;
}

}  // namespace

int64_t rows_of(std::span<const RowRun> runs) {
  int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rows;
  return rows;
}

RowPlaces::RowPlaces(Shard to) : segments_(std::move(to)) {
  std::ranges::sort(segments_, {}, place_of);
  for (const Segment& s : segments_)
    if (strides_.empty() || strides_.back() != std::pair(s.seq, s.stride))
      strides_.emplace_back(s.seq, s.stride);
}

std::vector<RowRun> RowPlaces::runs(const Shard& from, Interval rows) const {
  std::vector<RowRun> all;
  for_each_piece(from, rows, [&](const RowRun& run) {
    if (all.empty() || !join(all.back(), run)) all.push_back(run);
    return true;
  });
  return all;
}

int RowPlaces::block_of(const Shard& from) const {
  RowRun block;
  for_each_piece(from, {0, num_rows(from)}, [&](const RowRun& run) {
    if (block.rows > 0) return join(block, run);
    block = run;
    return run.from == 0 && run.to_step == 1;
  });
  return block.rows == num_rows(from) && block.to_step == 1 ? block.to : -1;
}

template <typename Visit>
void RowPlaces::for_each_piece(const Shard& from, Interval rows, Visit visit) const {
  auto s = std::ranges::upper_bound(from, rows.begin, {}, &Segment::row_end);
  for (; s != from.end() && s->row < rows.end; ++s) {
    const int end = std::min(rows.end, s->row_end()) - s->row;
    for (int i = std::max(rows.begin, s->row) - s->row; i < end;) {
      check_interrupt(32);
      const Segment* to = find(s->seq, s->position(i));
      if (to == nullptr) {
        i = first_behind(*s, i);
        continue;
      }
      RowRun run{s->row + i, to->row + (s->position(i) - to->pos) / to->stride, 1};
      if (s->stride % to->stride == 0) {
        run.rows = std::min(end, s->rows_below(to->position(to->len - 1) + 1)) - i;
        if (run.rows > 1) run.to_step = s->stride / to->stride;
      }
      if (!visit(run)) return;
      i += run.rows;
    }
  }
}

const Segment* RowPlaces::find(int seq, int position) const {
  auto stride = std::ranges::lower_bound(strides_, std::pair(seq, 0));
  for (; stride != strides_.end() && stride->first == seq; ++stride) {
    const auto wanted = std::tuple(seq, stride->second, position % stride->second, position);
    const auto behind = std::ranges::upper_bound(segments_, wanted, {}, place_of);
    if (behind == segments_.begin()) continue;
    const Segment& s = *(behind - 1);
    const bool same_steps =
        s.seq == seq && s.stride == stride->second && s.pos % s.stride == position % s.stride;
    if (same_steps && position < s.position(s.len)) return &s;
  }
  return nullptr;
}

// The first row of a segment behind row i that may be here, which is not.
int RowPlaces::first_behind(const Segment& s, int i) const {
  const auto stride = std::ranges::lower_bound(strides_, std::pair(s.seq, 0));
  if (stride == strides_.end() || stride->first != s.seq) return s.len;
  const auto next_stride = stride + 1;
  const bool are_runs =
      stride->second == 1 && (next_stride == strides_.end() || next_stride->first != s.seq);
  if (!are_runs) return i + 1;
  const auto next =
      std::ranges::upper_bound(segments_, std::tuple(s.seq, 1, 0, s.position(i)), {}, place_of);
  return next == segments_.end() || next->seq != s.seq ? s.len : s.rows_below(next->pos);
}

}  // namespace ringside
