// What a rank fetches and what it computes with it, without a list of the tiles that see it.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/estimate/home_keys.h"
#include "reference/plan/tile_counts.h"
#include "reference/transport/transport.h"

namespace ringside {

struct Fetched {
  struct FromOwner {
    int owner = 0, stage = 0;
    int rows = 0, apart = 0;  // apart: those that lie together there and not here
  };
  struct InStage {
    int64_t messages = 0, rows = 0, apart = 0;
    TileCounts counts;  // of what arrives
  };
  TileCounts own;                 // of the rank's keys
  std::vector<FromOwner> owners;  // in the order of arrival
  std::vector<InStage> stages;
};

// Of a plan that has homes, all of runs. Ranks may be asked for on several threads at a time.
Fetched fetched_by(int rank, const Plan& plan, const HomeKeys& keys, int num_stages,
                   StackOrder order, const BlockSize& block_size);

}  // namespace ringside
