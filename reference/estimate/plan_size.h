// How many tiles a plan would hold, before it is built: most of its memory.
#pragma once

#include <cstdint>

#include "reference/transport/transport.h"

namespace ringside {

inline constexpr int64_t kMaxTiles = 50'000'000;  // of a plan, unless asked for: 2 GiB

// The tiles that build_plan() would make; for a transport that estimate() does not know, those of a
// ring, about as many.
int64_t num_tiles(const Problem& problem, const Placement& placement, const Transport& transport);

// Raises InvalidArgument where that is more than max_tiles, where segments do not lie inside the
// layout, or where steps do not fit into memory (plan_memory.h). What cannot be is not counted:
// segments of a sequence times segments of its keys are counted first.
void check_tiles(const Problem& problem, const Placement& placement, const Transport& transport,
                 int64_t max_tiles);

}  // namespace ringside
