#include "reference/estimate/shard_counts.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "reference/estimate/line.h"
#include "reference/support/interrupt.h"
#include "reference/support/parallel.h"

namespace ringside {
namespace {

template <typename Visit>  // visit(the segments of one sequence)
void for_each_sequence(const Shard& shard, Visit visit) {
  Shard sorted;
  if (!std::ranges::is_sorted(shard, {}, &Segment::seq)) {
    sorted = shard;
    std::ranges::stable_sort(sorted, {}, &Segment::seq);
  }
  const Shard& segments = sorted.empty() ? shard : sorted;
  for (auto first = segments.begin(); first != segments.end();) {
    const auto behind = std::find_if(first, segments.end(),
                                     [seq = first->seq](const Segment& s) { return s.seq != seq; });
    visit(std::span(first, behind));
    first = behind;
  }
}

// How many sequences each one stands for: those of equal lengths that are cut alike cost the same,
// so that the first of them is counted for all and the others for none.
std::vector<int> weights_of(const Problem& problem, const SortedKeys& q, const SortedKeys& k) {
  const int batch = problem.layout_q.batch();
  std::vector<int> weights(batch, 0);
  std::unordered_multimap<size_t, int> known;
  for (int seq = 0; seq < batch; ++seq) {
    const auto is_alike = [&](const auto& other) {
      const int first = other.second;
      return problem.layout_q.len(seq) == problem.layout_q.len(first) &&
             problem.layout_k.len(seq) == problem.layout_k.len(first) && q.are_alike(seq, first) &&
             k.are_alike(seq, first);
    };
    check_interrupt(8 * int64_t{q.of_sequence(seq).size() + k.of_sequence(seq).size() + 1});
    const size_t hash = q.hash(seq) * 7 + k.hash(seq);
    const auto [begin, end] = known.equal_range(hash);
    const auto first = std::find_if(begin, end, is_alike);
    if (first == end) known.emplace(hash, seq);
    ++weights[first == end ? seq : first->second];
  }
  return weights;
}

}  // namespace

TileCounts count_line(const Problem& problem, const Shard& q, const Shard& k,
                      const BlockSize& block_size) {
  const SortedKeys keys(problem.layout_k, {&k}, block_size.k);
  Line line(problem, keys, 1, block_size);
  for_each_sequence(q, [&](std::span<const Segment> queries) { line.add(queries, 1); });
  line.finish();
  return line.cells()[0];
}

ShardCounts::ShardCounts(const Problem& problem, std::vector<const Shard*> q,
                         std::vector<const Shard*> k, const BlockSize& block_size)
    : num_k_(k.size()), cells_(q.size() * k.size()) {
  const SortedKeys keys(problem.layout_k, k, block_size.k);
  const auto weights = weights_of(problem, SortedKeys(problem.layout_q, q, block_size.q), keys);
  const int shards = static_cast<int>(q.size());
  const int parts = shards < 64 ? 16 : 1;  // of a shard's sequences: few shards are cut for threads
  std::mutex adding;
  parallel_for(shards * parts, [&](int item) {
    const int shard = item / parts, part = item % parts;
    Line line(problem, keys, num_k_, block_size);
    for_each_sequence(*q[shard], [&](std::span<const Segment> queries) {
      const int seq = queries.front().seq;
      if (seq % parts == part && weights[seq] > 0) line.add(queries, weights[seq]);
    });
    line.finish();
    const std::lock_guard lock(adding);
    for (size_t i = 0; i < num_k_; ++i) cells_[shard * num_k_ + i] += line.cells()[i];
  });
}

}  // namespace ringside
