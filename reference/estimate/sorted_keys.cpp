#include "reference/estimate/sorted_keys.h"

#include <algorithm>

#include "reference/blocks.h"
#include "reference/interrupt.h"

namespace ringside {

SortedKeys::SortedKeys(const PackedLayout& layout, const std::vector<const Shard*>& shards,
                       int block_rows)
    : begin_(layout.batch() + 1), are_runs_(layout.batch(), true) {
  for (int i = 0; i < static_cast<int>(shards.size()); ++i)
    for (Segment s : *shards[i]) {
      check_interrupt(8);
      s.len = s.rows_below(layout.len(s.seq));
      if (s.len == 0) continue;
      keys_.push_back({s, i, num_blocks(s.len, block_rows)});
      ++begin_[s.seq + 1];
      if (s.stride != 1 && s.len > 1) are_runs_[s.seq] = false;
    }
  std::ranges::sort(keys_, {},
                    [](const KeySegment& k) { return std::pair(k.segment.seq, k.segment.pos); });
  for (size_t seq = 1; seq < begin_.size(); ++seq) begin_[seq] += begin_[seq - 1];
  rows_before_.push_back(0);
  blocks_before_.push_back(0);
  for (const KeySegment& k : keys_) {
    rows_before_.push_back(rows_before_.back() + k.segment.len);
    blocks_before_.push_back(blocks_before_.back() + k.blocks);
    sizes_.push_back({k.shard, k.segment.len, k.blocks});
  }
}

int SortedKeys::common_stride(int seq, int length) const {
  const Interval all = of_sequence(seq);
  if (all.size() == 0) return 0;
  const int stride = keys_[all.begin].segment.stride;
  for (int i = all.begin; i < all.end; ++i) {
    const Segment& s = keys_[i].segment;
    if (s.stride != stride || s.pos >= stride || s.len != (length - s.pos - 1) / stride + 1)
      return 0;
  }
  return stride;
}

bool SortedKeys::are_alike(int a, int b) const {
  const auto same = [](const KeySegment& x, const KeySegment& y) {
    return x.shard == y.shard && x.segment.pos == y.segment.pos &&
           x.segment.stride == y.segment.stride && x.segment.len == y.segment.len;
  };
  return std::equal(keys_.begin() + begin_[a], keys_.begin() + begin_[a + 1],
                    keys_.begin() + begin_[b], keys_.begin() + begin_[b + 1], same);
}

size_t SortedKeys::hash(int seq) const {
  size_t hash = 0;
  for (int i = begin_[seq]; i < begin_[seq + 1]; ++i)
    hash = hash * 1'000'003 + static_cast<size_t>(keys_[i].shard) * 31 + keys_[i].segment.pos;
  return hash;
}

int SortedKeys::most_of_sequence() const {
  int most = 0;
  for (size_t seq = 1; seq < begin_.size(); ++seq)
    most = std::max(most, begin_[seq] - begin_[seq - 1]);
  return most;
}

int SortedKeys::first_from(int seq, int position) const {
  const auto at =
      std::partition_point(keys_.begin() + begin_[seq], keys_.begin() + begin_[seq + 1],
                           [position](const KeySegment& k) { return k.segment.pos < position; });
  return static_cast<int>(at - keys_.begin());
}

int SortedKeys::first_beyond(int seq, int position) const {
  const auto at = std::partition_point(
      keys_.begin() + begin_[seq], keys_.begin() + begin_[seq + 1],
      [position](const KeySegment& k) { return k.segment.pos + k.segment.len <= position; });
  return static_cast<int>(at - keys_.begin());
}

Interval SortedKeys::inside(int seq, Interval positions) const {
  const int begin = first_from(seq, positions.begin);
  if (positions.end <= positions.begin) return {begin, begin};
  return {begin, std::max(begin, first_beyond(seq, positions.end))};
}

Interval SortedKeys::meeting(int seq, Interval positions) const {
  const int begin = first_beyond(seq, positions.begin);
  if (positions.end <= positions.begin) return {begin, begin};
  return {begin, std::max(begin, first_from(seq, positions.end))};
}

}  // namespace ringside
