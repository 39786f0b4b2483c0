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

HomeKeys::HomeKeys(const Plan& plan) : begin_(plan.problem.layout_k.batch() + 1), first_word_{0} {
  const int ranks = plan.cp_size();
  for (const Buffer& home : plan.home_kv) {
    for (const Segment& s : plan.shard(home)) ++begin_[s.seq + 1];
    first_word_.push_back(first_word_.back() + (plan.rows(home) + 63) / 64);
  }
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
    bits_.push_back(
        {static_cast<uint32_t>(first_word_[rank] * 64 + keys_.back().row), keys_.back().len});
    places_[rank][segment] = i;
  }
}

int HomeKeys::first_from(int seq, int position) const {
  const auto at = std::partition_point(keys_.begin() + begin_[seq], keys_.begin() + begin_[seq + 1],
                                       [position](const Segment& k) { return k.pos < position; });
  return static_cast<int>(at - keys_.begin());
}

int HomeKeys::first_beyond(int seq, int position) const {
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
