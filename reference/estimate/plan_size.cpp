#include "reference/estimate/plan_size.h"

#include <vector>

#include "reference/estimate/plan_memory.h"
#include "reference/estimate/shard_counts.h"
#include "reference/support/errors.h"
#include "reference/support/memory.h"
#include "reference/transport/gather.h"
#include "reference/transport/ring_of_groups.h"
#include "reference/verify/validate.h"

namespace ringside {
namespace {

// Of each sequence, once they have been checked: they may be anybody's.
std::vector<int64_t> count_segments(Operand operand, const PackedLayout& layout,
                                    const std::vector<Shard>& shards) {
  check_shards(operand, layout, shards);
  std::vector<int64_t> counts(layout.batch());
  for (const Shard& shard : shards)
    for (const Segment& s : shard) ++counts[s.seq];
  return counts;
}

int64_t most_tiles(const Problem& problem, const Placement& placement) {
  const auto of_q = count_segments(Operand::q, problem.layout_q, placement.q);
  const auto of_k = count_segments(Operand::kv, problem.layout_k, placement.k);
  int64_t most = 0;
  for (size_t s = 0; s < of_q.size(); ++s) most += of_q[s] * of_k[s];
  return most;
}

int64_t all_tiles(const Problem& problem, const std::vector<const Shard*>& q,
                  const std::vector<const Shard*>& k) {
  const ShardCounts counts(problem, q, k, {});
  int64_t tiles = 0;
  for (size_t i = 0; i < q.size(); ++i)
    for (size_t j = 0; j < k.size(); ++j)
      tiles += counts.of(static_cast<int>(i), static_cast<int>(j)).tiles;
  return tiles;
}

}  // namespace

int64_t num_tiles(const Problem& problem, const Placement& placement, const Transport& transport) {
  Plan plan = plan_of_homes(problem, placement, transport);
  std::vector<const Shard*> q, k;
  if (transport.name == "all_gather") {
    const Gather gather(plan, transport.order);
    for (const Buffer& home : plan.home_q) q.push_back(&plan.shard(home));
    return all_tiles(problem, q, {&plan.shards[gather.kv_shard()]});
  }
  const int a2a_size = transport.name == "a2a"       ? plan.cp_size()
                       : transport.name == "a2a+p2p" ? transport.a2a_size
                                                     : 1;
  const RingOfGroups ring(plan, a2a_size, transport.order);
  for (int group = 0; group < ring.groups(); ++group) {
    q.push_back(&plan.shards[ring.q_shard(group)]);
    k.push_back(&plan.shards[ring.kv_shard(group)]);
  }
  return all_tiles(problem, q, k);
}

void check_tiles(const Problem& problem, const Placement& placement, const Transport& transport,
                 int64_t max_tiles) {
  require(max_tiles >= 0, "max_tiles=", max_tiles, "; expected 0 or more. Leave it out for ",
          kMaxTiles);
  if (problem.layout_q.batch() != problem.layout_k.batch()) return;  // refused where it is built
  const int64_t most = most_tiles(problem, placement);
  check_memory_of_plan(problem, placement, transport);
  if (most <= max_tiles) return;
  const int64_t tiles = num_tiles(problem, placement, transport);
  require(tiles <= max_tiles, "the plan has ", tiles, " tiles, ",
          gibibytes(static_cast<double>(tiles) * sizeof(Tile)),
          "; expected at most max_tiles=", max_tiles,
          ". To count what it costs, call ringside.estimate() with the same arguments: it builds "
          "none. To build it all the same, pass max_tiles=",
          tiles);
}

}  // namespace ringside
