// What a plan costs, counted from its data: work, traffic and memory, per rank and step.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/plan.h"

namespace ringside {

// The size of what travels. K/V, results and gradients have the same element size; lse is float32.
struct ElementSizes {
  int head_dim_qk = 128, head_dim_v = 128;
  int bytes = 2;
};

struct StepCost {
  int64_t pairs = 0;           // visible (query, key) pairs, summed over the rank's query heads
  int64_t bytes_received = 0;  // q and kv, from other ranks, before the step
  int64_t bytes_sent = 0;
  int rows_q = 0, rows_kv = 0;  // resident
};

struct PlanCost {
  std::vector<std::vector<StepCost>> step_of_rank;  // [cp_size][num_steps]
  // Results (out and lse) that travel to the rank and away from it at the end: the transpose of all
  // q messages.
  std::vector<int64_t> result_bytes_received, result_bytes_sent;  // [cp_size]

  int64_t pairs(int rank) const;
  int64_t bytes_received(int rank) const;  // whole forward pass, results included
  int64_t bytes_sent(int rank) const;
  double imbalance() const;  // max / mean of pairs over the ranks; 1 when there is no work at all
};

PlanCost cost(const Plan& plan, const ElementSizes& sizes = {});

}  // namespace ringside
