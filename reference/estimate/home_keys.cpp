#include "reference/estimate/home_keys.h"

#include <algorithm>
#include <numeric>

#include "reference/support/interrupt.h"

namespace ringside {
namespace {

bool goes_on(const Segment& a, const Segment& b) {
  return a.seq == b.seq && a.position(a.len) == b.pos;
}

bool is_of_runs(const Shard& home) {
  for (size_t i = 0; i < home.size(); ++i)
    if (home[i].stride != 1 || (i > 0 && goes_on(home[i - 1], home[i]))) return false;
  return true;
}

}  // namespace

bool HomeKeys::are_runs(const Plan& plan) {
  return std::ranges::all_of(plan.home_kv, [&](const Buffer& home) {
    check_interrupt(2 * std::ssize(plan.shard(home)) + 1);
    return is_of_runs(plan.shard(home));
  });
}

HomeKeys::HomeKeys(const Plan& plan) : begin_(plan.problem.layout_k.batch() + 1) {
  const int ranks = plan.cp_size();
  for (const Buffer& home : plan.home_kv)
    for (const Segment& s : plan.shard(home)) ++begin_[s.seq + 1];
  lay_out_words(plan);
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  std::vector<std::pair<int, int>> order(begin_.back());  // (owner, segment of its home)
  std::vector<int> next(begin_.begin(), begin_.end() - 1);
  places_.resize(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const Shard& home = plan.shard(plan.home_kv[rank]);
    check_interrupt(8 * std::ssize(home) + 1);
    places_[rank].resize(home.size());
    for (int i = 0; i < static_cast<int>(home.size()); ++i) order[next[home[i].seq]++] = {rank, i};
  }
  const auto segment_of = [&](const std::pair<int, int>& at) -> const Segment& {
    return plan.shard(plan.home_kv[at.first])[at.second];
  };
  for (size_t seq = 0; seq + 1 < begin_.size(); ++seq) {
    check_interrupt(16 * int64_t{of_sequence(static_cast<int>(seq)).size()} + 1);
    std::sort(order.begin() + begin_[seq], order.begin() + begin_[seq + 1],
              [&](const auto& a, const auto& b) { return segment_of(a).pos < segment_of(b).pos; });
  }
  for (int i = 0; i < static_cast<int>(order.size()); ++i) {
    const auto [rank, segment] = order[i];
    keys_.push_back(segment_of(order[i]));
    owners_.push_back(rank);
    const int row = keys_.back().row;
    first_bits_.push_back(static_cast<uint32_t>(word(rank, row / 64) * 64 + row % 64));
    rows_.push_back(keys_.back().len);
    places_[rank][segment] = i;
  }
  for (size_t seq = 0; seq + 1 < begin_.size(); ++seq)
    are_rows_.push_back(std::ranges::all_of(rows(of_sequence(static_cast<int>(seq))),
                                            [](int n) { return n == 1; }));
  find_stretches();
  find_between();
}

void HomeKeys::lay_out_words(const Plan& plan) {
  for (const Buffer& home : plan.home_kv) {
    const Shard& shard = plan.shard(home);
    homes_.push_back(&shard);
    layers_.push_back((num_rows(shard) + 63) / 64);
    check_interrupt(std::ssize(shard) + 2 * layers_.back() + 1);
    std::vector<int>& segments = segment_of_word_.emplace_back();
    int segment = 0;
    for (int layer = 0; layer < layers_.back(); ++layer) {
      while (shard[segment].row_end() <= 64 * layer) ++segment;
      segments.push_back(segment);
    }
    segments.push_back(static_cast<int>(shard.size()) - 1);
  }
  // Those of more layers first: whoever has a layer has a column before those who have not.
  std::vector<int> order(layers_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [this](int o) { return layers_[o]; });
  column_.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) column_[order[i]] = static_cast<int>(i);
  first_of_layer_.push_back(0);
  for (auto owners = std::ssize(order); owners > 0;) {
    const int layer = static_cast<int>(first_of_layer_.size()) - 1;
    while (owners > 0 && layers_[order[owners - 1]] <= layer) --owners;
    for (int column = 0; column < owners; ++column)
      next_words_.push_back(static_cast<uint32_t>(first_of_layer_.back() + owners + column));
    first_of_layer_.push_back(first_of_layer_.back() + owners);
  }
}

void HomeKeys::find_stretches() {
  for (int i = 0; i < static_cast<int>(owners_.size());) {
    Stretch stretch{i + 1, true};
    const int end = static_cast<int>(owners_.size());
    if (stretch.end < end) stretch.rises = owners_[i] <= owners_[i + 1];
    while (stretch.end < end && (stretch.rises ? owners_[stretch.end - 1] <= owners_[stretch.end]
                                               : owners_[stretch.end - 1] >= owners_[stretch.end]))
      ++stretch.end;
    check_interrupt(stretch.end - i);
    i = stretch.end;
    stretches_.push_back(stretch);
  }
}

void HomeKeys::find_between() {
  for (const auto& places : places_) {
    check_interrupt(4 * std::ssize(places) + 1);
    auto& between = between_.emplace_back(places.size());
    for (size_t i = 1; i < places.size(); ++i) {
      const int next = places[i - 1] + 1;
      if (next == places[i])
        between[i].nothing = true;
      else if (next < std::ssize(keys_))
        between[i] = {false, owners_[next], keys_[next].row};
    }
  }
}

HomeKeys::Stretch HomeKeys::stretch(int i, int end) const {
  const Stretch found = *std::ranges::upper_bound(stretches_, i, {}, &Stretch::end);
  return {std::min(found.end, end), found.rises};
}

int HomeKeys::behind_owners_to(int last, Interval keys) const {
  const auto at = std::partition_point(owners_.begin() + keys.begin, owners_.begin() + keys.end,
                                       [last](int owner) { return owner <= last; });
  return static_cast<int>(at - owners_.begin());
}

int HomeKeys::behind_owners_down_to(int first, Interval keys) const {
  const auto at = std::partition_point(owners_.begin() + keys.begin, owners_.begin() + keys.end,
                                       [first](int owner) { return owner >= first; });
  return static_cast<int>(at - owners_.begin());
}

int HomeKeys::segment_at(int owner, int row) const {
  const auto& segments = segment_of_word_[owner];
  const auto first = homes_[owner]->begin();
  const auto found =
      std::upper_bound(first + segments[row / 64], first + segments[row / 64 + 1], row,
                       [](int wanted, const Segment& s) { return wanted < s.row_end(); });
  return static_cast<int>(found - first);
}

int HomeKeys::first_from(int seq, int position) const {
  if (position <= 0) return begin_[seq];
  const auto at = std::partition_point(keys_.begin() + begin_[seq], keys_.begin() + begin_[seq + 1],
                                       [position](const Segment& k) { return k.pos < position; });
  return static_cast<int>(at - keys_.begin());
}

int HomeKeys::first_beyond(int seq, int position) const {
  if (position <= 0) return begin_[seq];
  const auto at =
      std::partition_point(keys_.begin() + begin_[seq], keys_.begin() + begin_[seq + 1],
                           [position](const Segment& k) { return k.pos + k.len <= position; });
  return static_cast<int>(at - keys_.begin());
}

Interval HomeKeys::inside(int seq, Interval positions) const {
  const int begin = first_from(seq, positions.begin);
  if (positions.end <= positions.begin) return {begin, begin};
  return {begin, std::max(begin, first_beyond(seq, positions.end))};
}

Interval HomeKeys::meeting(int seq, Interval positions) const {
  const int begin = first_beyond(seq, positions.begin);
  if (positions.end <= positions.begin) return {begin, begin};
  return {begin, std::max(begin, first_from(seq, positions.end))};
}

}  // namespace ringside
