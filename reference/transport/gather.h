// Every rank receives all K/V: what is resident then. The tiles are made by all_gather.cpp.
#pragma once

#include "reference/transport/transport.h"

namespace ringside {

class Gather {
 public:
  Gather(Plan& plan, StackOrder order);  // adds what is gathered to the plan's shards

  const Stacked& kv() const { return gathered_; }
  int kv_shard() const { return gathered_.shard; }
  Step make_step(int rank) const;  // without tiles

 private:
  const Plan& plan_;
  Stacked gathered_;
};

}  // namespace ringside
