#include "reference/plan/key_owners.h"

#include <algorithm>

#include "reference/support/interrupt.h"

namespace ringside {

int64_t rows_of_all(const RowsOfOwners& rows) {
  int64_t sum = 0;
  for (const auto& [rank, of_rank] : rows) sum += of_rank;
  return sum;
}

int64_t rows_of_owner(const RowsOfOwners& rows, int rank) {
  const auto found = std::ranges::lower_bound(rows, rank, {}, &RowsOfOwners::value_type::first);
  return found != rows.end() && found->first == rank ? found->second : 0;
}

KeyOwners::KeyOwners(const Plan& plan)
    : strides_of_(plan.problem.layout_k.batch()), homes_of_sequence_(strides_of_.size()) {
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    for (const Segment& s : plan.shard(plan.home_kv[rank])) homes_.push_back({s, rank});
  const auto key = [](const Home& home) {
    const Segment& s = home.segment;
    return std::tuple(s.seq, s.stride, s.pos % s.stride, s.pos);
  };
  std::ranges::sort(homes_, {}, key);
  for (int i = 0; i < static_cast<int>(homes_.size()); ++i) {
    const Segment& s = homes_[i].segment;
    auto& strides = strides_of_[s.seq];
    Interval& of_sequence = homes_of_sequence_[s.seq];
    of_sequence = {of_sequence.size() == 0 ? i : of_sequence.begin, i + 1};
    if (strides.empty() || strides.back() != s.stride) strides.push_back(s.stride);
    const auto [range, is_new] =
        homes_of_.try_emplace({s.seq, s.stride, s.pos % s.stride}, Interval{i, i});
    range->second.end = i + 1;
  }
}

const KeyOwners::Home& KeyOwners::home_of(int seq, int position) const {
  for (const int stride : strides_of_[seq]) {
    const auto range = homes_of_.find({seq, stride, position % stride});
    if (range == homes_of_.end()) continue;
    const auto first = homes_.begin() + range->second.begin;
    const auto behind =
        std::upper_bound(first, homes_.begin() + range->second.end, position,
                         [](int wanted, const Home& home) { return wanted < home.segment.pos; });
    if (behind == first) continue;
    const Home& home = *(behind - 1);
    if (position < home.segment.position(home.segment.len)) return home;
  }
  return homes_.front();  // never: every row has its home
}

// Homes that hold every n-th row are asked one by one: they are fewer than the rows.
bool KeyOwners::count_strided(const SeenRows& seen, RowsOfOwners& counts) const {
  const auto& [segment, rows] = seen;
  const auto& strides = strides_of_[segment.seq];
  const auto is_finer = [&](int stride) {
    return stride != segment.stride && stride % segment.stride == 0;
  };
  const Interval homes = homes_of_sequence_[segment.seq];
  if (!std::ranges::all_of(strides, is_finer) || homes.size() >= rows.size()) return false;
  const int first = segment.position(rows.begin), end = segment.position(rows.end - 1) + 1;
  for (int i = homes.begin; i < homes.end; ++i) {
    check_interrupt(8);
    const auto& [home, rank] = homes_[i];
    if ((home.pos - first) % segment.stride != 0) continue;
    const int held = home.rows_below(end) - home.rows_below(first);
    if (held > 0) counts.push_back({rank, held});
  }
  return true;
}

void KeyOwners::count_runs(const SeenRows& seen, RowsOfOwners& counts) const {
  const auto& [segment, rows] = seen;
  for (int i = rows.begin; i < rows.end;) {
    check_interrupt(32);
    const auto& [home, rank] = home_of(segment.seq, segment.position(i));
    const int left_of_home =
        home.rows_below(segment.position(rows.end - 1) + 1) - home.rows_below(segment.position(i));
    const int together = home.stride == segment.stride ? left_of_home : 1;
    if (counts.empty() || counts.back().first != rank) counts.push_back({rank, 0});
    counts.back().second += together;
    i += together;
  }
}

RowsOfOwners KeyOwners::count(std::span<const SeenRows> rows) const {
  RowsOfOwners counts;
  for (const SeenRows& seen : rows)
    if (!count_strided(seen, counts)) count_runs(seen, counts);
  std::ranges::sort(counts);
  size_t kept = 0;
  for (size_t i = 1; i < counts.size(); ++i) {
    if (counts[i].first == counts[kept].first)
      counts[kept].second += counts[i].second;
    else
      counts[++kept] = counts[i];
  }
  if (!counts.empty()) counts.resize(kept + 1);
  return counts;
}

RowsOfOwners KeyOwners::count(const Shard& shard) const {
  std::vector<SeenRows> rows;
  for (const Segment& s : shard)
    if (s.len > 0) rows.push_back({s, {0, s.len}});
  return count(rows);
}

}  // namespace ringside
