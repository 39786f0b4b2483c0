#include "reference/estimate/sorted_keys.h"

#include <algorithm>

#include "reference/rows/blocks.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

// How many of the first keys of a sequence of `length` tokens are dealt like cards.
int num_dealt(std::span<const KeySegment> keys, int length) {
  const int stride = keys.empty() ? 1 : keys.front().segment.stride;
  if (stride == 1) return 0;
  const auto other = std::ranges::find_if_not(keys, [&](const KeySegment& k) {
    const Segment& s = k.segment;
    return s.stride == stride && s.pos < stride && s.len == (length - s.pos - 1) / stride + 1;
  });
  return static_cast<int>(other - keys.begin());
}

}  // namespace

SortedKeys::SortedKeys(const PackedLayout& layout, const std::vector<const Shard*>& shards,
                       int block_rows)
    : begin_(layout.batch() + 1),
      are_runs_(layout.batch(), true),
      dealt_(layout.batch()),
      are_cards_(layout.batch(), false) {
  for (const Shard* shard : shards) {
    check_interrupt(4 * std::ssize(*shard) + 1);
    for (const Segment& s : *shard) begin_[s.seq + 1] += s.rows_below(layout.len(s.seq)) > 0;
  }
  for (size_t seq = 1; seq < begin_.size(); ++seq) begin_[seq] += begin_[seq - 1];
  keys_.resize(begin_.back());
  std::vector<int> next(begin_.begin(), begin_.end() - 1);
  for (int i = 0; i < static_cast<int>(shards.size()); ++i) {
    check_interrupt(8 * std::ssize(*shards[i]) + 1);
    for (Segment s : *shards[i]) {
      s.len = s.rows_below(layout.len(s.seq));
      if (s.len == 0) continue;
      keys_[next[s.seq]++] = {s, i, num_blocks(s.len, block_rows)};
      if (s.stride != 1 && s.len > 1) are_runs_[s.seq] = false;
    }
  }
  sort_sequences(layout);
  add_up();
  find_cards(shards.size());
}

void SortedKeys::sort_sequences(const PackedLayout& layout) {
  const auto position = [](const KeySegment& k) { return k.segment.pos; };
  for (int seq = 0; seq < layout.batch(); ++seq) {
    const std::span keys = std::span(keys_).subspan(begin_[seq], of_sequence(seq).size());
    check_interrupt(16 * std::ssize(keys) + 1);
    if (!std::ranges::is_sorted(keys, {}, position)) std::ranges::sort(keys, {}, position);
    dealt_[seq] = num_dealt(keys, layout.len(seq));
  }
}

void SortedKeys::add_up() {
  rows_before_.reserve(keys_.size() + 1);
  blocks_before_.reserve(keys_.size() + 1);
  sizes_.reserve(keys_.size());
  rows_before_.push_back(0);
  blocks_before_.push_back(0);
  for (const KeySegment& k : keys_) {
    rows_before_.push_back(rows_before_.back() + k.segment.len);
    blocks_before_.push_back(blocks_before_.back() + k.blocks);
    sizes_.push_back({k.shard, k.segment.len, k.blocks});
  }
}

void SortedKeys::find_cards(size_t num_shards) {
  const int batch = static_cast<int>(are_cards_.size());
  for (int seq = 0; seq < batch; ++seq)
    if (dealt_[seq] > cards_.size()) cards_ = dealt(seq);
  const auto all = sizes_of(cards_);
  for (int seq = 0; seq < batch; ++seq) {
    const auto some = sizes_of(dealt(seq));
    check_interrupt(std::ssize(some) + 1);
    are_cards_[seq] =
        std::ranges::equal(some, all.first(some.size()), {}, &KeySize::shard, &KeySize::shard);
  }
  std::vector<bool> is_taken(num_shards);
  are_in_hands_ = true;
  for (size_t card = 0; card < all.size(); ++card) {
    const int shard = all[card].shard;
    const bool is_next = card == 0 || shard != all[card - 1].shard;
    hands_.push_back(card == 0 ? 0 : hands_.back() + is_next);
    if (is_next && is_taken[shard]) are_in_hands_ = false;
    is_taken[shard] = true;
  }
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
