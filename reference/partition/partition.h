// Which rank owns which rows, as segments: the closed forms of pieces.h laid out row by row.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reference/packed_layout.h"
#include "reference/partition/pieces.h"
#include "reference/segment.h"

namespace ringside {

std::span<const NamedPartition> partitions();
const NamedPartition& find_partition(const std::string& name);  // unknown names list the known ones

// Every rank's shard.
std::vector<Shard> make_shards(const NamedPartition& partition, const PackedLayout& layout,
                               int cp_size);

}  // namespace ringside
