// Which rank owns which rows. A partition is one short function; contiguous.cpp is the one to copy.
//
// Ownership is about rows, so padding is owned too. No length has to divide: chunks may differ by a
// row and a rank may own nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reference/packed_layout.h"
#include "reference/segment.h"

namespace ringside {

using PartitionFunction = Shard (*)(const PackedLayout& layout, int cp_size, int rank);

Shard contiguous(const PackedLayout& layout, int cp_size, int rank);
Shard zigzag(const PackedLayout& layout, int cp_size, int rank);
Shard striped(const PackedLayout& layout, int cp_size, int rank);
Shard whole_pack(const PackedLayout& layout, int cp_size, int rank);
Shard whole_pack_zigzag(const PackedLayout& layout, int cp_size, int rank);

struct NamedPartition {
  const char* name;
  PartitionFunction shard;
  const char* summary;
};
std::span<const NamedPartition> partitions();
const NamedPartition& find_partition(const std::string& name);  // unknown names list the known ones

// Every rank's shard.
std::vector<Shard> make_shards(PartitionFunction partition, const PackedLayout& layout,
                               int cp_size);

// Where part i of n begins when `length` rows are cut into n parts that differ by at most one row.
inline int cut(int length, int n, int i) {
  return static_cast<int>(static_cast<long long>(length) * i / n);
}

}  // namespace ringside
