// Capacities for the lengths of random plans.
#pragma once

#include <algorithm>
#include <optional>

#include "optimized/program/program.h"
#include "reference/test_support/test_random_case.h"

namespace ringside::testing {

// Room for a plan's problem, and up to so many rows more; none where DevicePlan has none for such
// plans.
inline std::optional<Capacity> room_for(Random& random, const Plan& plan, const Problem& problem,
                                        int most_more_rows) {
  if (!find_partition(plan.partition).rule.is_closed_form() || plan.comm == "fetch") return {};
  Capacity room;
  room.partition = plan.partition, room.comm.name = plan.comm, room.cp_size = plan.cp_size();
  if (plan.comm == "a2a+p2p") room.comm.a2a_size = room.cp_size % 2 == 0 ? 2 : 1;
  room.mask = problem.mask;
  room.num_heads = problem.num_heads, room.num_kv_heads = problem.num_kv_heads;
  room.max_sequences = problem.layout_q.batch() + 1 + random.integer(0, 3);
  room.max_rows_q = problem.layout_q.num_rows() + random.integer(0, most_more_rows);
  room.max_rows_k = problem.layout_k.num_rows() + random.integer(0, most_more_rows);
  if (random.coin()) {
    room.max_seqlen = 1;
    for (const PackedLayout* layout : {&problem.layout_q, &problem.layout_k})
      for (int seq = 0; seq < layout->batch(); ++seq)
        room.max_seqlen = std::max(room.max_seqlen, layout->len(seq));
  }
  return room;
}

}  // namespace ringside::testing
