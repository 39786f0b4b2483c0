#include "reference/estimate/estimate.h"

#include <memory>
#include <utility>

#include "reference/estimate/fetched.h"
#include "reference/estimate/fetched_stripes.h"
#include "reference/estimate/plan_memory.h"
#include "reference/estimate/plan_size.h"
#include "reference/estimate/shard_counts.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"
#include "reference/support/parallel.h"
#include "reference/transport/fetch.h"
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
    std::vector<Shard> queries;  // of groups of several ranks
    for (int group = 0; a2a_size > 1 && group < ring.groups(); ++group)
      queries.push_back(joined(*q[group]));
    parallel_for(plan_.cp_size(), [&](int rank) {
      std::vector<Step> steps;
      steps.reserve(ring.num_steps());
      for (int i = 0; i < ring.num_steps(); ++i) steps.push_back(ring.make_step(rank, i));
      const int group = ring.group_of(rank);
      for (int i = 0; i < ring.num_steps(); ++i) {
        if (steps[i].kv.heads.size() == 0) continue;
        const int owner = ring.owner_at(group, i);
        total_->add_work(rank, i, counts.of(group, owner), steps[i].q.heads.size());
        if (owner == group)
          total_->rows_needed(rank, i) -= a2a_size == 1 ? counts.of(group, owner).rows_needed
                                                        : seen_at_home(rank, queries[group]);
      }
      add(rank, steps);
    });
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
    parallel_for(plan_.cp_size(), [&](int rank) {
      const Step step = gather.make_step(rank);
      total_->add_work(rank, 0, counts.of(rank, 0), step.q.heads.size());
      total_->rows_needed(rank, 0) -= seen_at_home(rank, joined(*q[rank]));
      add(rank, {&step, 1});
    });
    return total();
  }

  CostOfPasses of_fetch(int stages, StackOrder order) {
    const int ranks = plan_.cp_size(), most = num_stages(stages, ranks);
    std::vector<Fetched> fetched(ranks);
    if (HomeKeys::are_runs(plan_)) {
      const HomeKeys keys(plan_);
      parallel_for(ranks, [&](int rank) {
        fetched[rank] = fetched_by(rank, plan_, keys, most, order, block_size_);
      });
    } else {
      const HomeStripes stripes(plan_);
      parallel_for(ranks, [&](int rank) {
        fetched[rank] = fetched_of_stripes(rank, plan_, stripes, most, order, block_size_);
      });
    }
    std::vector<int> used;  // stages in which somebody fetches
    for (int stage = 0; stage < most; ++stage)
      if (std::ranges::any_of(fetched, [&](const auto& f) { return f.stages[stage].rows > 0; }))
        used.push_back(stage);
    std::vector<std::vector<int64_t>> sent(ranks, std::vector<int64_t>(most));
    for (const Fetched& of_rank : fetched)
      for (const auto& from : of_rank.owners) sent[from.owner][from.stage] += from.rows;
    start(static_cast<int>(used.size()) + 1);
    for (int rank = 0; rank < ranks; ++rank)
      add_fetched(rank, std::exchange(fetched[rank], {}), used, sent[rank]);
    return total();
  }

 private:
  void add_fetched(int rank, const Fetched& fetched, const std::vector<int>& used,
                   const std::vector<int64_t>& sent) {
    std::vector<Step> steps(1);
    steps[0].q = plan_.home_q[rank];
    steps[0].kv = plan_.home_kv[rank];
    for (const int stage : used)
      steps.push_back(fetching(rank, fetched, stage, sent[stage], stage == used.back()));
    const int heads = steps[0].q.heads.size();
    total_->add_work(rank, 0, fetched.own, heads);
    total_->rows_needed(rank, 0) -= fetched.own.rows_needed;
    for (size_t i = 0; i < used.size(); ++i)
      total_->add_work(rank, static_cast<int>(i) + 1, fetched.stages[used[i]].counts, heads);
    add(rank, steps);
    for (size_t i = 0; i < used.size(); ++i)
      total_->messages(rank, static_cast<int>(i) + 1) = fetched.stages[used[i]].messages;
  }

  // As large as the step of a stage is, in as few segments and messages as say it.
  Step fetching(int rank, const Fetched& fetched, int stage, int64_t sent, bool last) {
    const Fetched::InStage& arriving = fetched.stages[stage];
    const Range heads{0, plan_.problem.num_kv_heads};
    const int other = (rank + 1) % plan_.cp_size(), home = plan_.rows(plan_.home_kv[rank]);
    Step step;
    step.q = plan_.home_q[rank];
    const auto add_rows = [&](std::vector<Message>& messages, int peer, int row, int64_t rows) {
      constexpr int64_t kMost = 1 << 30;
      for (; rows > 0; rows -= kMost)
        add_message(messages,
                    {peer, Operand::kv, row, static_cast<int>(std::min(rows, kMost)), heads});
    };
    if (!last) add_rows(step.before.receives, rank, 0, home);
    add_rows(step.before.receives, other, 0, arriving.rows - arriving.apart);
    add_rows(step.before.receives, other, kByPosition, arriving.apart);
    add_rows(step.before.sends, other, 0, sent);
    if (arriving.rows == 0) {
      if (!last) step.kv = plan_.home_kv[rank];
      return step;
    }
    const int rows = static_cast<int>(arriving.rows) + (last ? 0 : home);
    step.kv = {add_shard(plan_, {{.len = rows}}), heads};
    std::vector<KeySource> sources;
    for (const auto& from : fetched.owners)
      if (from.stage == stage) sources.push_back({from.owner, from.rows, from.apart});
    for (auto& [pass, counter] : passes_) counter->set_sources(step.kv.shard, sources);
    return step;
  }

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

  // How many keys of the rank's home these queries see, which are sorted by sequence.
  int64_t seen_at_home(int rank, const Shard& queries) const {
    int64_t seen = 0;
    std::vector<Interval> rows;  // of one segment
    for (const Segment& k : plan_.shard(plan_.home_kv[rank])) {
      const SequenceMask mask = mask_of(plan_.problem, k.seq);
      const auto of_sequence = std::ranges::equal_range(queries, k.seq, {}, &Segment::seq);
      check_interrupt(16 * (std::ssize(of_sequence) + 1));
      rows.clear();
      for (const Segment& q : of_sequence)
        for_each_seen_run(mask, q, k, [&](Interval run) { rows.push_back(run); });
      unite(rows);
      for (const Interval run : rows) seen += run.size();
    }
    return seen;
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
  check_pairs(problem);
  check_memory_of_cost(problem, placement, transport);
  const int cp_size = homes.cp_size();
  const std::string& name = transport.name;
  if (name == "all_gather")
    return Estimate(std::move(homes), sizes, block_size).of_gather(transport.order);
  const int a2a_size = name == "p2p" ? 1 : name == "a2a" ? cp_size : transport.a2a_size;
  if (name == "p2p" || name == "a2a" || name == "a2a+p2p")
    return Estimate(std::move(homes), sizes, block_size).of_ring(a2a_size, transport.order);
  if (HomeKeys::are_runs(homes) || HomeStripes::are_stripes(homes))
    return Estimate(std::move(homes), sizes, block_size)
        .of_fetch(transport.stages.value_or(kDefaultStages), transport.order);
  const int64_t tiles = num_tiles(problem, placement, transport);
  if (tiles > kMaxTiles)
    throw Unsupported(concat(
        "comm=\"", name, "\" of keys that are neither runs of positions nor the stripes of ",
        "partition=\"striped\" is built to be counted and would have about ", tiles,
        " tiles; expected at most ", kMaxTiles,
        ". Its pairs are those of comm=\"p2p\": pass that, a named partition, or fewer ranks"));
  return cost_of_passes(build_plan(problem, placement, transport), sizes, block_size);
}

}  // namespace ringside
