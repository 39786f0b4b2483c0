// What an exchange does to data, and its transpose.
//
// carry() moves what is resident before a step into the buffers of that step; rows that nobody
// sends stay poisoned. carry_back() is its transpose: every block returns to where it came from and
// is added, so that sum(carry(x) * y) == sum(x * carry_back(y)). Results return the same way,
// merged.
#pragma once

#include <vector>

#include "reference/attention/tensor.h"
#include "reference/plan/residency.h"

namespace ringside {

PerRank carry(const Plan& plan, int step, Operand operand, PerRank resident);
PerRank carry_back(const Plan& plan, int step, Operand operand, PerRank gradients);

// Merges results of the step's query buffers into those of the buffers before it.
void carry_back_results(const Plan& plan, int step, const std::vector<Partial>& results,
                        std::vector<Partial>& before);

// A global array [rows, heads, dim] <-> what each rank owns of it.
PerRank shard(const PackedLayout& layout, const std::vector<Shard>& shards, const TensorView& x);
Tensor unshard(const PackedLayout& layout, const std::vector<Shard>& shards, const PerRank& x);

}  // namespace ringside
