// Everything a plan or an attention call can be given wrong, checked once at the door.
#pragma once

#include <string>
#include <vector>

#include "reference/plan/plan.h"
#include "reference/rows/packed_layout.h"

namespace ringside {

void check_problem(const Problem& problem);

// Segments inside the layout, laid out back to back; `what` begins the message.
void check_segments(const std::string& what, const PackedLayout& layout, const Shard& shard);

// The segments of every rank so: who counts or indexes by them asks first.
void check_shards(Operand operand, const PackedLayout& layout, const std::vector<Shard>& shards);

// Every row of the layout owned exactly once.
void check_ownership(Operand operand, const PackedLayout& layout, const std::vector<Shard>& shards);

}  // namespace ringside
