// Rows of several ranks in one buffer; see StackOrder.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "reference/rows/row_places.h"
#include "reference/support/interrupt.h"
#include "reference/transport/fetch.h"
#include "reference/transport/transport.h"

namespace ringside {
namespace {

using Segments = std::vector<const Segment*>;

Segments segments_of(const Plan& plan, const std::vector<Buffer>& buffers) {
  Segments all;
  for (const Buffer& buffer : buffers) {
    check_interrupt(8);
    for (const Segment& s : plan.shard(buffer)) all.push_back(&s);
  }
  return all;
}

// By sequence, in linear time as there may be millions, and then by position.
Segments in_sequence_order(const Segments& segments, int batch) {
  std::vector<size_t> begin(batch + 1, 0);
  for (const Segment* s : segments) ++begin[s->seq + 1];
  for (int seq = 0; seq < batch; ++seq) begin[seq + 1] += begin[seq];
  Segments sorted(segments.size());
  std::vector<size_t> next(begin.begin(), begin.end() - 1);
  for (const Segment* s : segments) sorted[next[s->seq]++] = s;
  for (int seq = 0; seq < batch; ++seq) {
    const auto first = sorted.begin() + static_cast<std::ptrdiff_t>(begin[seq]);
    const auto behind = sorted.begin() + static_cast<std::ptrdiff_t>(begin[seq + 1]);
    check_interrupt(8 * (behind - first) + 1);
    std::sort(first, behind, [](const Segment* a, const Segment* b) { return a->pos < b->pos; });
  }
  return sorted;
}

// The rows of segments of one sequence, by position, that are dealt like cards and leave none out:
// 0 where they are not.
int rows_dealt(std::span<const Segment* const> dealt) {
  int rows = 0;
  for (const Segment* s : dealt) rows += s->len;
  const int stride = std::min(dealt.front()->stride, rows);
  if (stride <= 1 || stride != static_cast<int>(dealt.size())) return 0;
  for (int i = 0; i < stride; ++i) {
    const Segment& s = *dealt[i];
    const bool steps = s.stride == dealt.front()->stride || s.len == 1;
    if (!steps || s.pos != dealt.front()->pos + i || s.len != (rows - i - 1) / stride + 1) return 0;
  }
  return rows;
}

// Neighbours become one, and so do stripes that are all there.
Shard joined(const Segments& sorted) {
  Shard shard;
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i;
    while (end < sorted.size() && sorted[end]->seq == sorted[i]->seq) ++end;
    const Segment& first = *sorted[i];
    if (const int rows = rows_dealt(std::span(sorted).subspan(i, end - i)); rows > 0)
      append(shard, first.seq, first.pos, 1, rows);
    else
      for (size_t j = i; j < end; ++j)
        append(shard, first.seq, sorted[j]->pos, sorted[j]->stride, sorted[j]->len);
    i = end;
  }
  return shard;
}

Shard one_below_the_other(const Segments& segments) {
  Shard shard;
  for (const Segment* s : segments) append(shard, s->seq, s->pos, s->stride, s->len);
  return shard;
}

Shard in_halves(const Plan& plan, const std::vector<Buffer>& buffers) {
  Shard shard;
  for (const bool first : {true, false})
    for (const Buffer& buffer : buffers) {
      const int rows = plan.rows(buffer), half = rows / 2;
      append_rows(shard, plan.shard(buffer), first ? Interval{0, half} : Interval{half, rows});
    }
  return shard;
}

// Of one_below_the_other(), of which there may be millions.
size_t num_segments_below(const Segments& segments) {
  size_t number = 0;
  Segment last;
  for (const Segment* s : segments) {
    const bool goes_on = number > 0 && s->seq == last.seq && s->stride == last.stride &&
                         s->pos == last.position(last.len);
    if (goes_on) {
      last.len += s->len;
    } else {
      last = *s;
      ++number;
    }
  }
  return number;
}

int row_of(const RowPlaces& places, const Shard& shard) {
  const int row = shard.empty() ? 0 : places.block_of(shard);
  return row < 0 ? kByPosition : row;
}

}  // namespace

std::optional<Shard> in_fewer_segments(const Shard& shard, int batch) {
  Segments segments;
  for (const Segment& s : shard) segments.push_back(&s);
  Shard fewer = joined(in_sequence_order(segments, batch));
  if (fewer.size() < shard.size()) return fewer;
  return {};
}

Stacked stack(Plan& plan, const std::vector<Buffer>& buffers, StackOrder order) {
  if (buffers.size() == 1) return {buffers[0].shard, {0}};
  if (order == StackOrder::in_halves)
    return {add_shard(plan, in_halves(plan, buffers)),
            std::vector<int>(buffers.size(), kByPosition)};
  const Segments segments = segments_of(plan, buffers);
  std::vector<int> row;
  if (order == StackOrder::fewest_segments) {
    const PackedLayout& layout = plan.problem.layout_k;  // the batch is that of q
    Shard shard = joined(in_sequence_order(segments, layout.batch()));
    if (shard.size() < num_segments_below(segments)) {
      const RowPlaces places(shard);
      for (const Buffer& buffer : buffers) row.push_back(row_of(places, plan.shard(buffer)));
      return {add_shard(plan, std::move(shard)), std::move(row)};
    }
  }
  int next = 0;
  for (const Buffer& buffer : buffers) {
    row.push_back(next);
    next += plan.rows(buffer);
  }
  return {add_shard(plan, one_below_the_other(segments)), std::move(row)};
}

}  // namespace ringside
