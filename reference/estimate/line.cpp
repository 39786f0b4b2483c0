#include "reference/estimate/line.h"

#include <algorithm>
#include <tuple>

#include "reference/plan/tiles.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

// Calls visit(index, size) with the size of the union of all parts of each index.
template <typename Visit>
void for_each_union(std::vector<Part>& parts, Visit visit) {
  std::ranges::sort(parts, {}, [](const Part& p) { return std::pair(p.index, p.interval.begin); });
  for (size_t i = 0; i < parts.size();) {
    const int index = parts[i].index;
    int size = 0, end = 0;
    for (; i < parts.size() && parts[i].index == index; ++i) {
      size += std::max(0, parts[i].interval.end - std::max(end, parts[i].interval.begin));
      end = std::max(end, parts[i].interval.end);
    }
    visit(index, size);
  }
  parts.clear();
}

// Calls visit(range, size) with the size of the union of what is spread over each index.
template <typename Visit>
void for_each_union(std::vector<Spread>& spreads, Visit visit) {
  std::ranges::sort(spreads, {}, [](const Spread& s) {
    return std::tuple(s.interval.begin, s.interval.end, s.range.begin);
  });
  std::vector<int> cuts;
  size_t kept = 0;
  for (size_t i = 1; i < spreads.size(); ++i)
    if (spreads[i].interval == spreads[kept].interval &&
        spreads[i].range.begin <= spreads[kept].range.end)
      spreads[kept].range.end = std::max(spreads[kept].range.end, spreads[i].range.end);
    else
      spreads[++kept] = spreads[i];
  if (!spreads.empty()) spreads.resize(kept + 1);
  for (const Spread& s : spreads) cuts.insert(cuts.end(), {s.range.begin, s.range.end});
  std::ranges::sort(cuts);
  for (size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i - 1] == cuts[i]) continue;
    check_interrupt(2 * std::ssize(spreads));
    int size = 0, end = 0;
    for (const Spread& s : spreads) {
      if (!s.range.contains(cuts[i - 1])) continue;
      size += std::max(0, s.interval.end - std::max(end, s.interval.begin));
      end = std::max(end, s.interval.end);
    }
    visit(Interval{cuts[i - 1], cuts[i]}, size);
  }
  spreads.clear();
}

}  // namespace

std::vector<int> places_of_ends(const SequenceMask& mask, const Segment& q) {
  std::vector<int> places{0, q.stride, mask.len_k % q.stride};
  const int ends[] = {0, mask.len_k};
  for (int i = 0; i < q.len;) {
    check_interrupt(32);
    const Interval seen = mask.visible(q.position(i));
    places.push_back(seen.begin % q.stride);
    places.push_back(seen.end % q.stride);
    const int64_t change = mask.mask.next_change(q.position(i), mask.len_q, mask.len_k, ends);
    i = static_cast<int>(std::min<int64_t>(q.len, (change - q.pos - 1) / q.stride + 1));
  }
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

int Grown::grow(int wanted, Interval interval) {
  if (of != wanted) {
    of = wanted;
    all = interval;
    return interval.size();
  }
  if (interval.end < all.begin || all.end < interval.begin) return -1;
  const int before = all.size();
  all = {std::min(all.begin, interval.begin), std::max(all.end, interval.end)};
  return all.size() - before;
}

Line::Line(const Problem& problem, const SortedKeys& keys, size_t num_shards, const BlockSize& size)
    : problem_(problem),
      keys_(keys),
      size_(size),
      cells_(num_shards),
      seen_(keys.most_of_sequence()),
      cards_(num_shards > 1 ? keys.cards().size() + 1 : 0),
      hands_(keys.num_hands() + 1) {}

void Line::add(std::span<const Segment> queries, int weight) {
  const int seq = queries.front().seq;
  const SequenceMask mask = mask_of(problem_, seq);
  const Interval keys = keys_.of_sequence(seq), dealt = keys_.dealt(seq);
  weight_ = weight;
  is_only_query_ = queries.size() == 1;
  are_in_hands_ = keys_.are_in_hands() && dealt == keys;
  first_key_ = keys.begin;
  for (Segment q : queries) {
    q.len = q.rows_below(mask.len_q);
    if (q.len == 0) continue;
    check_interrupt(64);
    ++query_;
    const bool in_step = dealt.size() > 0 && q.stride == keys_[dealt.begin].segment.stride &&
                         mask.mask.is_one_window();
    if (keys_.are_runs(seq) && !(in_step && has_cards(seq))) {
      add_runs(mask, q);
    } else {
      if (in_step) add_strides(mask, q, dealt);
      for (int k = in_step ? dealt.end : keys.begin; k < keys.end; ++k) add_partly(mask, q, k);
    }
    finish_query();
  }
  finish_sequence();
  ++sequence_;
}

void Line::finish_query() {
  for_each_union(hand_visits_, [this](Interval hands, int blocks) {
    hands_[hands.begin] += weight_ * blocks;
    hands_[hands.end] -= weight_ * blocks;
  });
  if (visits_.empty()) return;
  for (const Part& part : std::vector(visits_)) {
    Part grown{part.index, cells_[part.index].visited.all};
    cells_[part.index].visits -= weight_ * grown.interval.size();
    cells_[part.index].visited.all = {};
    visits_.push_back(grown);
  }
  for_each_union(visits_,
                 [this](int shard, int blocks) { cells_[shard].visits += weight_ * blocks; });
}

// Keys one behind the other: those inside what the first and the last row see are seen whole.
void Line::add_runs(const SequenceMask& mask, const Segment& q) {
  const Interval first = mask.visible(q.pos), last = mask.visible(q.position(q.len - 1));
  const Interval some = keys_.meeting(q.seq, {first.begin, last.end});
  Interval all = keys_.inside(q.seq, {last.begin, first.end});
  if (all.size() == 0 || some.size() == 0) all = {some.begin, some.begin};
  add_seen_whole(q, all);
  for (int k = some.begin; k < all.begin; ++k) add_partly(mask, q, k);
  for (int k = all.end; k < some.end; ++k) add_partly(mask, q, k);
}

// Keys dealt like cards: between two places of ends, one stands for all.
void Line::add_strides(const SequenceMask& mask, const Segment& q, Interval dealt) {
  int begin = dealt.begin;
  for (const int place : places_of_ends(mask, q)) {
    const int end = std::min(dealt.end, keys_.first_from(q.seq, place));
    if (end > begin) add_alike(mask, q, {begin, end});
    begin = end;
  }
}

void Line::add_seen_whole(const Segment& q, Interval keys) {
  if (keys.size() == 0) return;
  const int blocks = num_blocks(q.len, size_.q);
  if (cells_.size() == 1) return add_to_only_shard(q, keys, blocks);
  check_interrupt(4 * int64_t{keys.size()});
  // Copies, as the compiler cannot know that what is written to cells is none of them.
  const int64_t weight = weight_, rows_q = weight * q.len, blocks_q = weight * blocks;
  const int query = query_, sequence = sequence_;
  Cell* const cells = cells_.data();
  Grown* seen = seen_.data() + (keys.begin - first_key_);
  const std::span<const KeySize> sizes = keys_.sizes_of(keys);
  for (const KeySize& k : sizes) {
    Cell& cell = cells[k.shard];
    cell.pairs += rows_q * k.rows;
    cell.blocks += blocks_q * k.blocks;
    cell.tiles += weight;
    cell.visits += cell.visited.of == query ? 0 : blocks_q;
    cell.visited = {query, {0, blocks}};
    cell.rows_needed += weight * (k.rows - (seen->of == sequence ? seen->all.size() : 0));
    *seen++ = {sequence, {0, k.rows}};
  }
}

void Line::add_to_only_shard(const Segment& q, Interval keys, int blocks) {
  TileCounts& cell = cells_[0];
  cell.pairs += weight_ * q.len * keys_.rows(keys);
  cell.blocks += weight_ * blocks * keys_.blocks(keys);
  cell.tiles += weight_ * keys.size();
  visit(0, {0, blocks});
  seen_whole_.push_back(keys);
}

void Line::add_partly(const SequenceMask& mask, const Segment& q, int key) {
  meet(mask, q, keys_[key].segment);
  if (met_.pairs > 0) add_met(key);
}

void Line::add_alike(const SequenceMask& mask, const Segment& q, Interval keys) {
  meet(mask, q, keys_[keys.begin].segment);
  if (met_.pairs == 0) return;
  if (has_cards(q.seq)) return add_cards(keys);
  check_interrupt(8 * int64_t{keys.size()});
  for (int i = keys.begin; i < keys.end; ++i) add_met(i);
}

// What each of them counts, at both ends of the range: whatever its size, unless other keys of the
// shard may have been visited.
void Line::add_cards(Interval keys) {
  TileCounts each{.pairs = weight_ * met_.pairs,
                  .blocks = weight_ * met_.blocks,
                  .partial_blocks = weight_ * met_.partial_blocks,
                  .tiles = weight_};
  if (are_in_hands_)
    visit_hands(keys);
  else
    visit_shards(keys);
  if (is_only_query_)
    for (const Interval rows : met_.seen) each.rows_needed += weight_ * rows.size();
  else
    for (const Interval rows : met_.seen)
      card_sights_.push_back({{keys.begin - first_key_, keys.end - first_key_}, rows});
  cards_[keys.begin - first_key_] += each;
  cards_[keys.end - first_key_] -= each;
}

void Line::visit_shards(Interval keys) {
  const auto sizes = keys_.sizes_of(keys);
  check_interrupt(2 * std::ssize(sizes));
  for (size_t i = 0; i < sizes.size(); ++i)
    if (i == 0 || sizes[i].shard != sizes[i - 1].shard)
      for (const Interval blocks : met_.visited) visit(sizes[i].shard, blocks);
}

void Line::visit_hands(Interval keys) {
  const Interval hands{keys_.hand(keys.begin - first_key_),
                       keys_.hand(keys.end - 1 - first_key_) + 1};
  for (const Interval blocks : met_.visited) hand_visits_.push_back({hands, blocks});
}

void Line::finish() {
  if (cards_.empty()) return;
  TileCounts card;
  const auto shards = keys_.sizes_of(keys_.cards());
  int64_t visits = 0;
  for (int i = 0; i < keys_.cards().size(); ++i) {
    Cell& cell = cells_[shards[i].shard];
    cell += card += cards_[i];
    if (i == 0 || keys_.hand(i) != keys_.hand(i - 1))
      cell.visits += visits += hands_[keys_.hand(i)];
  }
}

void Line::meet(const SequenceMask& mask, const Segment& q, const Segment& k) {
  check_interrupt(64);
  met_.pairs = visible_pairs(mask, q, k);
  met_.blocks = met_.partial_blocks = 0;
  met_.visited.clear();
  met_.seen.clear();
  if (met_.pairs == 0) return;
  for_each_block_run(mask, q, k, size_, [this](const BlockRun& run) {
    check_interrupt(4);
    met_.blocks += run.queries.size() * run.keys;
    met_.partial_blocks += run.queries.size() * (run.keys - run.all_seen);
    met_.visited.push_back(run.queries);
  });
  for_each_seen_run(mask, q, k, [this](Interval run) { met_.seen.push_back(run); });
  unite(met_.visited);
  unite(met_.seen);
}

bool Line::has_cards(int seq) const { return !cards_.empty() && keys_.are_cards(seq); }

void Line::add_met(int index) {
  const int shard = keys_[index].shard;
  Cell& cell = cells_[shard];
  cell.pairs += weight_ * met_.pairs;
  cell.blocks += weight_ * met_.blocks;
  cell.partial_blocks += weight_ * met_.partial_blocks;
  cell.tiles += weight_;
  for (const Interval blocks : met_.visited) visit(shard, blocks);
  for (const Interval rows : met_.seen) see(index, rows);
}

void Line::visit(int shard, Interval blocks) {
  const int more = cells_[shard].visited.grow(query_, blocks);
  if (more < 0)
    visits_.push_back({shard, blocks});
  else
    cells_[shard].visits += weight_ * more;
}

void Line::see(int index, Interval rows) {
  Grown& seen = seen_[index - first_key_];
  if (seen.of != sequence_ && cells_.size() == 1) seen_partly_.push_back(index);
  const int more = seen.grow(sequence_, rows);
  if (more < 0)
    sights_.push_back({index, rows});
  else
    cells_[keys_[index].shard].rows_needed += weight_ * more;
}

// Of one shard of keys: a range at a time, and without what was counted of keys inside already.
void Line::add_seen_by_ranges() {
  if (cells_.size() > 1) return;
  unite(seen_whole_);
  for (const Interval keys : seen_whole_) cells_[0].rows_needed += weight_ * keys_.rows(keys);
  for (const int index : seen_partly_) {
    const auto behind = std::ranges::upper_bound(seen_whole_, index, {}, &Interval::begin);
    if (behind == seen_whole_.begin() || !(behind - 1)->contains(index)) continue;
    Grown& seen = seen_[index - first_key_];
    cells_[0].rows_needed -= weight_ * seen.all.size();
    seen.all = {0, keys_[index].segment.len};
  }
  seen_whole_.clear();
  seen_partly_.clear();
}

void Line::finish_sequence() {
  add_seen_by_ranges();
  for_each_union(card_sights_, [this](Interval cards, int rows) {
    cards_[cards.begin].rows_needed += weight_ * rows;
    cards_[cards.end].rows_needed -= weight_ * rows;
  });
  if (sights_.empty()) return;
  for (const Part& part : std::vector(sights_)) {
    Grown& seen = seen_[part.index - first_key_];
    cells_[keys_[part.index].shard].rows_needed -= weight_ * seen.all.size();
    sights_.push_back({part.index, seen.all});
    seen.all = {};
  }
  for_each_union(sights_, [this](int index, int rows) {
    cells_[keys_[index].shard].rows_needed += weight_ * rows;
  });
}

}  // namespace ringside
