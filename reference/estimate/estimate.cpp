#include "reference/estimate/estimate.h"

#include <memory>
#include <utility>

#include "reference/errors.h"
#include "reference/estimate/plan_size.h"
#include "reference/estimate/shard_counts.h"
#include "reference/interrupt.h"
#include "reference/transport/gather.h"
#include "reference/transport/ring_of_groups.h"

namespace ringside {
namespace {

using ShardRefs = std::vector<const Shard*>;

// Neighbouring segments as one: which rows see which does not depend on where segments end.
Shard joined(const Shard& shard) {
  Shard sorted = shard, joined;
  std::ranges::sort(sorted, {}, [](const Segment& s) { return std::pair(s.seq, s.pos); });
  for (const Segment& s : sorted) append(joined, s.seq, s.pos, s.stride, s.len);
  return joined;
}

class Estimate {
 public:
  Estimate(Plan plan, const ElementSizes& sizes, const BlockSize& block_size)
      : plan_(std::move(plan)), sizes_(sizes), block_size_(block_size) {}

  CostOfPasses of_ring(int a2a_size, StackOrder order) {
    RingOfGroups ring(plan_, a2a_size, order);
    ShardRefs q, k;
    for (int group = 0; group < ring.groups(); ++group) {
      q.push_back(&plan_.shards[ring.q_shard(group)]);
      k.push_back(&plan_.shards[ring.kv_shard(group)]);
    }
    const ShardCounts counts(plan_.problem, q, k, block_size_);
    ring.find_last_hops([&](int group, int owner) { return counts.of(group, owner).tiles > 0; });
    start(ring.num_steps());
    for (int group = 0; group < ring.groups(); ++group)
      set_sources(ring.kv(group), group * a2a_size);
    for (int rank = 0; rank < plan_.cp_size(); ++rank) {
      std::vector<Step> steps;
      for (int i = 0; i < ring.num_steps(); ++i) steps.push_back(ring.make_step(rank, i));
      const int group = ring.group_of(rank);
      for (int i = 0; i < ring.num_steps(); ++i) {
        if (steps[i].kv.heads.size() == 0) continue;
        const int owner = ring.owner_at(group, i);
        total_->add_work(rank, i, counts.of(group, owner), steps[i].q.heads.size());
        if (owner == group)
          total_->rows_needed(rank, i) -=
              a2a_size == 1 ? counts.of(group, owner).rows_needed : seen_at_home(rank, *q[group]);
      }
      add(rank, steps);
    }
    return total();
  }

  CostOfPasses of_gather(StackOrder order) {
    const Gather gather(plan_, order);
    ShardRefs q;
    for (int rank = 0; rank < plan_.cp_size(); ++rank)
      q.push_back(&plan_.shard(plan_.home_q[rank]));
    const ShardCounts counts(plan_.problem, q, {&plan_.shards[gather.kv_shard()]}, block_size_);
    start(1);
    set_sources(gather.kv(), 0);
    for (int rank = 0; rank < plan_.cp_size(); ++rank) {
      const Step step = gather.make_step(rank);
      total_->add_work(rank, 0, counts.of(rank, 0), step.q.heads.size());
      total_->rows_needed(rank, 0) -= seen_at_home(rank, *q[rank]);
      add(rank, {&step, 1});
    }
    return total();
  }

 private:
  void start(int num_steps) {
    total_ = std::make_unique<PlanCost>(plan_.cp_size(), num_steps, block_size_);
    for (auto& [pass, counter] : passes_)
      counter = std::make_unique<PassCounter>(plan_, pass, sizes_, num_steps);
  }

  // A shard holds the homes of neighbouring ranks, from `first` on, whole.
  void set_sources(const Stacked& stacked, int first) {
    std::vector<KeySource> sources;
    for (size_t i = 0; i < stacked.row.size(); ++i) {
      const int rank = first + static_cast<int>(i), rows = plan_.rows(plan_.home_kv[rank]);
      if (rows > 0) sources.push_back({rank, rows, stacked.row[i] == kByPosition ? rows : 0});
    }
    for (auto& [pass, counter] : passes_) counter->set_sources(stacked.shard, sources);
  }

  void add(int rank, std::span<const Step> steps) {
    add_traffic(*total_, plan_, rank, steps, sizes_);
    for (auto& [pass, counter] : passes_) counter->add(rank, steps);
  }

  CostOfPasses total() {
    return {std::move(*total_), passes_[0].second->total(), passes_[1].second->total()};
  }

  // How many keys of the rank's home these queries see.
  int64_t seen_at_home(int rank, const Shard& queries) const {
    return count_line(plan_.problem, joined(queries), plan_.shard(plan_.home_kv[rank]), block_size_)
        .rows_needed;
  }

  Plan plan_;  // homes and shards alone
  const ElementSizes sizes_;
  const BlockSize block_size_;
  std::unique_ptr<PlanCost> total_;
  std::pair<Pass, std::unique_ptr<PassCounter>> passes_[2] = {{Pass::forward, nullptr},
                                                              {Pass::backward, nullptr}};
};

}  // namespace

CostOfPasses estimate(const Problem& problem, const Placement& placement,
                      const Transport& transport, const ElementSizes& sizes,
                      const BlockSize& block_size) {
  check_block_size(block_size);
  Plan homes = plan_of_homes(problem, placement, transport);
  const int cp_size = homes.cp_size();
  const std::string& name = transport.name;
  if (name == "all_gather")
    return Estimate(std::move(homes), sizes, block_size).of_gather(transport.order);
  const int a2a_size = name == "p2p" ? 1 : name == "a2a" ? cp_size : transport.a2a_size;
  if (name == "p2p" || name == "a2a" || name == "a2a+p2p")
    return Estimate(std::move(homes), sizes, block_size).of_ring(a2a_size, transport.order);
  const int64_t tiles = num_tiles(problem, placement, transport);
  if (tiles > kMaxTiles)
    throw Unsupported(concat("comm=\"", name, "\" is built to be counted and would have about ",
                             tiles, " tiles; expected at most ", kMaxTiles,
                             ". Its pairs are those of comm=\"p2p\": pass that, or fewer ranks"));
  return cost_of_passes(build_plan(problem, placement, transport), sizes, block_size);
}

}  // namespace ringside
