#include "reference/partition/partition.h"

#include <algorithm>

#include "reference/support/errors.h"
#include "reference/support/interrupt.h"
#include "reference/support/names.h"

namespace ringside {
namespace {

constexpr int64_t kStepsOfSequence = 16;  // what cutting one costs, in simple operations

// Appends the sequences' shares of rows [rows.begin, rows.end) of the packed stream.
void append_rows(Shard& shard, const PackedLayout& layout, Interval rows) {
  const auto& starts = layout.cu_seqlens_padded();
  const auto first =
      std::upper_bound(starts.begin(), starts.end(), rows.begin) - starts.begin() - 1;
  for (int s = static_cast<int>(first); s < layout.batch() && starts[s] < rows.end; ++s) {
    const int from = std::max(rows.begin, starts[s]), to = std::min(rows.end, starts[s + 1]);
    append(shard, s, from - starts[s], 1, to - from);
  }
}

}  // namespace

std::span<const NamedPartition> partitions() { return kPartitions; }

const NamedPartition& find_partition(const std::string& name) {
  return find_by_name("partition", partitions(), name);
}

OwnedRows own_rows(const NamedPartition& partition, const Problem& problem, int cp_size) {
  if (!partition.rule.is_closed_form()) return deal_balanced(problem, cp_size);
  return {make_shards(partition, problem.layout_q, cp_size),
          make_shards(partition, problem.layout_k, cp_size)};
}

Shard NamedPartition::shard(const PackedLayout& layout, int cp_size, int rank) const {
  if (!rule.is_closed_form())
    throw Unsupported(concat("partition=\"", name,
                             "\" has no closed form for one rank of a layout: ",
                             "its rows follow from all lengths and the mask. Nearest supported: ",
                             "own_rows() of the problem, or partition=\"zigzag\""));
  Shard shard;
  if (rule.of_stream) {
    const Pieces own = pieces_of(rule.kind, layout.num_rows(), cp_size, rank);
    append_rows(shard, layout, own.first);
    append_rows(shard, layout, own.second);
    return shard;
  }
  for (int s = 0; s < layout.batch(); ++s) {
    const Pieces own = pieces_of(rule.kind, layout.padded_len(s), cp_size, rank);
    append(shard, s, own.first.begin, own.stride, own.rows_of_first());
    append(shard, s, own.second.begin, 1, own.second.size());
  }
  return shard;
}

std::vector<Shard> make_shards(const NamedPartition& partition, const PackedLayout& layout,
                               int cp_size) {
  std::vector<Shard> shards;
  for (int rank = 0; rank < cp_size; ++rank) {
    check_interrupt(kStepsOfSequence * (int64_t{layout.batch()} + 1));
    shards.push_back(partition.shard(layout, cp_size, rank));
  }
  return shards;
}

}  // namespace ringside
