// A plan for lengths that only the device knows: its structure is fixed by capacities.
//
// Whatever the lengths, ranks trade whole home buffers of fixed capacity, so steps, exchanges and
// places in memory are those of a stand-in plan whose single sequence fills every buffer. Only who
// owns which rows, where gathered rows land and the work lists depend on lengths: length_tables.h.
// In the stand-in plan no rank's gathered rows lie together, as they may lie anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/transport/transport.h"

namespace ringside {

// Of a plan: its own, or any that fit, where it stands in for plans of other lengths.
enum class Lengths : uint8_t { of_plan, any };

struct Capacity {
  std::string partition = "zigzag";  // a name of the table in reference/partition
  Transport comm;
  Mask mask;
  int cp_size = 1;
  int num_heads = 1, num_kv_heads = 1;
  int max_sequences = 1, max_rows_q = 0, max_rows_k = 0;
  int pad_to_multiple_of = 1;  // padded lengths are multiples of this; 2*cp_size saves memory
  int max_seqlen = INT32_MAX;  // tokens of a sequence, of queries and of keys
};

// Rows that a rank's home buffer needs, whatever the lengths.
int rank_rows(const Capacity& capacity, int max_rows);

Plan stand_in_plan(const Capacity& capacity);

// The ranks whose home buffers a resident buffer of a stand-in plan is made of: a group of
// neighbours, all groups of an operand alike.
Interval owners_of(const Plan& stand_in, const Buffer& buffer, Operand operand);

// How many there are to the buffers that kernels meet.
int ranks_of_group(const Plan& stand_in, Operand operand);

}  // namespace ringside
