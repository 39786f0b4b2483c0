// Which rank owns which rows, as segments: the closed forms of pieces.h laid out row by row, and
// what is dealt out otherwise (balanced.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reference/partition/balanced.h"
#include "reference/partition/pieces.h"
#include "reference/rows/packed_layout.h"
#include "reference/rows/segment.h"

namespace ringside {

std::span<const NamedPartition> partitions();
const NamedPartition& find_partition(const std::string& name);  // unknown names list the known ones

// What every rank owns of both sides. Those of a closed form depend on no mask, and on one side's
// rows alone.
OwnedRows own_rows(const NamedPartition& partition, const Problem& problem, int cp_size);

// Every rank's shard, of a closed form.
std::vector<Shard> make_shards(const NamedPartition& partition, const PackedLayout& layout,
                               int cp_size);

}  // namespace ringside
