// What a pass costs each rank that runs alone: bytes by step, and the workspace beside its own
// arrays; counted from the schedules.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/cost.h"
#include "reference/schedule/schedule.h"

namespace ringside {

// What one cell takes: as it travels, or in memory. Partial results lie in float32 and travel like
// what they will be; gradients lie and travel in float32; lse and delta are float32 always.
int64_t bytes_of_cell(Payload payload, Pass pass, const ElementSizes& sizes, bool travels);

struct PassCost {
  std::vector<std::vector<int64_t>> bytes_sent, bytes_received;   // [cp_size][num_steps]
  std::vector<int64_t> result_bytes_sent, result_bytes_received;  // [cp_size] of a forward pass
  std::vector<int64_t> workspace_bytes;                           // [cp_size]
};

PassCost pass_cost(const Plan& plan, Pass pass, const ElementSizes& sizes = {});

}  // namespace ringside
