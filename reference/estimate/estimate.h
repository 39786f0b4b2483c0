// What a plan would cost, without its tiles and steps: of packs and ranks for which it would not
// fit into memory. Equal to cost() and pass_cost() of the plan in every number.
#pragma once

#include "reference/schedule/schedule_cost.h"
#include "reference/transport/transport.h"

namespace ringside {

// Fetch of keys that lie neither in runs of positions nor in the stripes of "striped" is built and
// counted; raises Unsupported where it would have more than kMaxTiles tiles.
CostOfPasses estimate(const Problem& problem, const Placement& placement,
                      const Transport& transport, const ElementSizes& sizes = {},
                      const BlockSize& block_size = {});

}  // namespace ringside
