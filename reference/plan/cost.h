// What a plan costs, counted from its data: work, traffic and memory, per rank and step.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "reference/plan/plan.h"
#include "reference/plan/tile_counts.h"

namespace ringside {

// The size of what travels. K/V, results and gradients have the same element size; lse is float32.
struct ElementSizes {
  int head_dim_qk = 128, head_dim_v = 128;
  int bytes = 2;
};

class PerStep {  // one number for every rank and step, in one array: there may be millions
 public:
  PerStep() = default;
  PerStep(int ranks, int steps)
      : ranks_(ranks), steps_(steps), cells_(static_cast<size_t>(ranks) * steps) {}

  int ranks() const { return ranks_; }
  int steps() const { return steps_; }
  int64_t& operator()(int rank, int step) { return cells_[index(rank, step)]; }
  int64_t operator()(int rank, int step) const { return cells_[index(rank, step)]; }
  std::span<const int64_t> of_rank(int rank) const {
    return std::span(cells_).subspan(index(rank, 0), steps_);
  }
  int64_t sum(int rank) const {
    const auto steps = of_rank(rank);
    return std::accumulate(steps.begin(), steps.end(), int64_t{0});
  }
  int64_t sum() const { return std::accumulate(cells_.begin(), cells_.end(), int64_t{0}); }
  const int64_t* data() const { return cells_.data(); }  // rank after rank
  bool operator==(const PerStep&) const = default;

 private:
  size_t index(int rank, int step) const { return static_cast<size_t>(rank) * steps_ + step; }

  int ranks_ = 0, steps_ = 0;
  std::vector<int64_t> cells_;
};

struct PlanCost {
  PlanCost() = default;
  PlanCost(int cp_size, int num_steps, const BlockSize& block_size);

  BlockSize block_size;
  // Visible (query, key) pairs, and what a kernel pays for them (blocks.h), summed over the query
  // heads of the rank. A query block that meets keys of several tiles is one visit. The backward
  // pass computes the same tiles.
  PerStep pairs, blocks, partial_blocks, visits;
  PerStep tiles;                       // whatever the heads
  PerStep rows_needed;                 // resident, of other ranks' homes, and seen by a tile
  PerStep bytes_received, bytes_sent;  // q and kv, from and to other ranks, before the step
  PerStep messages;                    // received so
  PerStep rows_q, rows_kv;             // resident
  // Results (out and lse) that travel to the rank and away from it at the end: the transpose of all
  // q messages.
  std::vector<int64_t> result_bytes_received, result_bytes_sent;  // [cp_size]

  void add_work(int rank, int step, const TileCounts& counts, int heads);
  int64_t all_bytes_received(int rank) const;  // whole forward pass, results included
  int64_t all_bytes_sent(int rank) const;
  double imbalance() const;  // max / mean of pairs over the ranks; 1 when there is no work at all
  double fill() const;       // pairs over the area of all blocks; 1 when there is no work at all
};

// Refuses more visible pairs than int64 counts.
void check_pairs(const Problem& problem);

PlanCost cost(const Plan& plan, const ElementSizes& sizes = {}, const BlockSize& block_size = {});

// Adds the traffic and the buffers of one rank, whose steps these are: of the plan, homes and
// shards alone count.
void add_traffic(PlanCost& cost, const Plan& plan, int rank, std::span<const Step> steps,
                 const ElementSizes& sizes);

void check_block_size(const BlockSize& block_size);  // raises InvalidArgument

}  // namespace ringside
