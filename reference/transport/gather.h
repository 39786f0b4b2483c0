// Every rank receives all K/V in rank order: what is resident then. The tiles are made by
// all_gather.cpp.
#pragma once

#include "reference/transport/transport.h"

namespace ringside {

class Gather {
 public:
  explicit Gather(Plan& plan);  // adds what is gathered to the plan's shards

  int kv_shard() const { return gathered_.shard; }
  Step make_step(int rank) const;  // without tiles

 private:
  const Plan& plan_;
  Stacked gathered_;
};

}  // namespace ringside
