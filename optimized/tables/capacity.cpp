#include "optimized/tables/capacity.h"

#include <algorithm>

#include "reference/partition/partition.h"
#include "reference/support/errors.h"
#include "reference/support/names.h"

namespace ringside {
namespace {

void check(const Capacity& c) {
  require(c.cp_size >= 1, "cp_size=", c.cp_size, "; expected at least 1 rank");
  require(c.max_sequences >= 1 && c.max_sequences <= 1 << 20, "max_sequences=", c.max_sequences,
          "; expected 1 to ", 1 << 20);
  require(c.max_rows_q >= 0 && c.max_rows_k >= 0, "max_rows_q=", c.max_rows_q,
          ", max_rows_k=", c.max_rows_k, "; expected at least 0");
  require(c.pad_to_multiple_of >= 1, "pad_to_multiple_of=", c.pad_to_multiple_of,
          "; expected at least 1");
  require(c.max_seqlen >= 1, "max_seqlen=", c.max_seqlen,
          "; expected at least 1. Leave it out where sequences have no bound");
}

// Only what keeps its shape whatever the lengths.
void require_closed_form(const Capacity& c) {
  if (!find_partition(c.partition).rule.is_closed_form())
    throw Unsupported(concat("a DevicePlan with partition=\"", c.partition,
                             "\", which deals rows by all lengths at once, and those only the ",
                             "device knows. Nearest supported: partition=\"zigzag\""));
  if (!find_by_name("comm", transports(), c.comm.name).moves_whole_buffers)
    throw Unsupported(
        concat("a DevicePlan with comm=\"", c.comm.name,
               "\", which moves as many rows as lengths and mask ask for, and lengths ",
               "only the device knows. Nearest supported: comm=\"all_gather\""));
}

bool holds(const Shard& shard, int position) {
  return std::ranges::any_of(shard, [position](const Segment& s) {
    return s.rows_within({position, position + 1}).size() > 0;
  });
}

}  // namespace

int rank_rows(const Capacity& c, int max_rows) {
  const PartitionRule partition = find_partition(c.partition).rule;
  const int64_t chunks = int64_t{c.cp_size} * partition.parts;
  const int64_t even = (max_rows + chunks - 1) / chunks * partition.parts;
  const bool divides = partition.of_stream || c.pad_to_multiple_of % chunks == 0;
  const int64_t ragged = divides ? 0 : int64_t{partition.parts} * c.max_sequences;
  const int64_t rows = std::min<int64_t>(even + ragged, max_rows);
  return static_cast<int>(std::max<int64_t>(rows + rows % 2, 2));  // both chunks of a rank alike
}

Plan stand_in_plan(const Capacity& c) {
  check(c);
  require_closed_form(c);
  const auto layout = [&](int max_rows) {
    const int64_t rows = int64_t{rank_rows(c, max_rows)} * c.cp_size;
    require(rows < INT32_MAX, "buffers of ", rows, " rows; expected below 2^31. Lower max_rows");
    return PackedLayout({0, static_cast<int32_t>(rows)});
  };
  const Problem problem{layout(c.max_rows_q), layout(c.max_rows_k), Mask::full(), c.num_heads,
                        c.num_kv_heads};
  Transport comm = c.comm;
  comm.order = StackOrder::in_halves;
  return build_plan(problem, place(problem, c.partition, c.cp_size), comm);
}

Interval owners_of(const Plan& stand_in, const Buffer& buffer, Operand operand) {
  const auto& homes = operand == Operand::q ? stand_in.home_q : stand_in.home_kv;
  Interval owners;
  for (int rank = 0; rank < stand_in.cp_size(); ++rank)
    if (holds(stand_in.shard(buffer), stand_in.shard(homes[rank])[0].pos))
      owners = {owners.size() == 0 ? rank : owners.begin, rank + 1};
  return owners;
}

int ranks_of_group(const Plan& stand_in, Operand operand) {
  const bool is_q = operand == Operand::q;
  const int rows = stand_in.rows(is_q ? stand_in.home_q[0] : stand_in.home_kv[0]);  // of any rank
  int ranks = 1;
  for (const auto& steps : stand_in.steps_of_rank)
    for (const Step& step : steps)
      ranks = std::max(ranks, stand_in.rows(is_q ? step.q : step.kv) / rows);
  return ranks;
}

}  // namespace ringside
