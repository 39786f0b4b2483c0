#include "reference/partition/partition.h"

#include "reference/interrupt.h"
#include "reference/names.h"

namespace ringside {

static constexpr int64_t kStepsOfSequence = 16;  // what cutting one costs, in simple operations

std::span<const NamedPartition> partitions() {
  static constexpr NamedPartition kTable[] = {
      {"contiguous", contiguous, "each sequence in cp_size runs"},
      {"zigzag", zigzag, "each sequence in 2*cp_size chunks, rank r owns r and 2*cp_size-1-r"},
      {"striped", striped, "each sequence dealt token by token"},
      {"whole_pack", whole_pack, "the packed stream in cp_size runs"},
      {"whole_pack_zigzag", whole_pack_zigzag, "the packed stream in 2*cp_size chunks, mirrored"},
  };
  return kTable;
}

const NamedPartition& find_partition(const std::string& name) {
  return find_by_name("partition", partitions(), name);
}

std::vector<Shard> make_shards(PartitionFunction partition, const PackedLayout& layout,
                               int cp_size) {
  std::vector<Shard> shards;
  for (int rank = 0; rank < cp_size; ++rank) {
    check_interrupt(kStepsOfSequence * (int64_t{layout.batch()} + 1));
    shards.push_back(partition(layout, cp_size, rank));
  }
  return shards;
}

}  // namespace ringside
