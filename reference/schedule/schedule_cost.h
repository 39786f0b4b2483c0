// What a pass costs each rank that runs alone: bytes by step, and the workspace beside its own
// arrays. Counted from the steps of a plan as schedules are made from them (forward.cpp and
// backward.cpp), without making any: there are as many fetches as ranks times steps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "reference/plan/cost.h"
#include "reference/schedule/schedule.h"

namespace ringside {

// What one cell takes: as it travels, or in memory. Partial results lie in float32 and travel like
// what they will be; gradients lie and travel in float32; lse and delta are float32 always.
int64_t bytes_of_cell(Payload payload, Pass pass, const ElementSizes& sizes, bool travels);

struct PassCost {
  PerStep bytes_sent, bytes_received;
  std::vector<int64_t> result_bytes_sent, result_bytes_received;  // [cp_size] of a forward pass
  std::vector<int64_t> workspace_bytes;                           // [cp_size]
  std::vector<int64_t> kept_bytes{};  // [cp_size] beside it, from forward to backward
  PerStep gradient_bytes_sent{}, gradient_bytes_received{};  // of those of a backward pass
};

PassCost pass_cost(const Plan& plan, Pass pass, const ElementSizes& sizes = {},
                   KeepKv keep = KeepKv::no);

struct CostOfPasses : PlanCost {
  PassCost forward_pass, backward_pass;
};
CostOfPasses cost_of_passes(const Plan& plan, const ElementSizes& sizes,
                            const BlockSize& block_size, KeepKv keep = KeepKv::no);

struct KeySource {  // of the rows of a shard
  int rank = 0;
  int64_t rows = 0;   // that are at home there
  int64_t apart = 0;  // of those: that lie together there and not here
};

// The same, rank by rank, for steps that need not be the plan's own: of it homes and shards count.
class PassCounter {
 public:
  PassCounter(const Plan& plan, Pass pass, const ElementSizes& sizes, int num_steps,
              KeepKv keep = KeepKv::no);

  // Where a shard of keys comes from: of all that steps name, before they are added.
  void set_sources(int shard, std::vector<KeySource> sources) {
    sources_of_[shard] = std::move(sources);
  }
  // Of different ranks on several threads at a time.
  void add(int rank, std::span<const Step> steps);
  PassCost total() { return std::move(cost_); }

 private:
  struct OfRank;  // a rank and its steps
  void add_messages(const OfRank& of, int step, Operand operand, Payload payload);
  void add_messages_back(const OfRank& of, int step, Operand operand, Payload payload);
  void add_forward(const OfRank& of);
  void add_backward(const OfRank& of);
  struct Fetched {
    int64_t staged = 0;  // cells
  };
  std::optional<Fetched> fetch(const OfRank& of, int step);
  void add_kept(const OfRank& of);
  int64_t travels(Payload payload, int64_t cells) const;
  int64_t lies(Payload payload, int64_t cells) const;

  const Plan& plan_;
  Pass pass_;
  ElementSizes sizes_;
  KeepKv keep_;
  std::map<int, std::vector<KeySource>> sources_of_;  // by shard
  PassCost cost_;
};

}  // namespace ringside
