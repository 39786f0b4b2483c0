// Which positions each rank owns, in closed form. To add a partition, say here which pieces of a
// length a rank owns, and add a line to the table: plans, tables that are filled on the device and
// the Python package ask nobody else. The peers' primitives (thd) take their order from Zigzag. One
// line has no closed form: balanced.h deals it out on the host, for plans that know their lengths.
//
// A partition cuts each sequence or, as if it were one long sequence, the packed stream: fewer
// segments, but balanced only if the documents happen to be. It is about rows, so padding is owned
// too. No length has to divide: chunks may differ by a row, and a rank may own nothing.
//
// Integers only: device code includes this file too.
#pragma once

#include <cstdint>

#include "reference/rows/mask.h"
#include "reference/rows/segment.h"
#include "reference/support/host_device.h"

namespace ringside {

// Where part i of n begins when `length` rows are cut into n parts that differ by at most one row.
RINGSIDE_HD inline int cut(int length, int n, int i) {
  const uint64_t product = uint64_t{static_cast<uint32_t>(length)} * static_cast<uint32_t>(i);
  if (product >> 32 == 0)  // devices divide 32 bits much faster
    return static_cast<int>(static_cast<uint32_t>(product) / static_cast<uint32_t>(n));
  return static_cast<int>(product / static_cast<uint32_t>(n));
}

// What a rank owns of a length: at most two runs of positions, or one of every stride-th.
struct Pieces {
  Interval first, second;  // first.end <= second.begin, unless the second is empty
  int stride = 1;          // of the first

  RINGSIDE_HD int rows_of_first() const {
    return stride == 1 ? first.size() : (first.size() + stride - 1) / stride;
  }
};

// Run r of cp_size.
struct Contiguous {
  RINGSIDE_HD static Pieces pieces(int length, int cp_size, int rank) {
    return {{cut(length, cp_size, rank), cut(length, cp_size, rank + 1)}, {}};
  }
};

// Tokens dealt like cards: rank r owns positions r, r+cp_size, r+2*cp_size, ...
struct Striped {
  RINGSIDE_HD static Pieces pieces(int length, int cp_size, int rank) {
    return {{rank, length > rank ? length : rank}, {}, cp_size};
  }
};

// Dual chunks: of 2*cp_size chunks rank r owns chunk r and its mirror image 2*cp_size-1-r, so that
// under a causal mask every rank gets a cheap and an expensive one. Transformer Engine's THD order
// is the case in which 2*cp_size divides every padded length.
struct Zigzag {
  struct Cut {  // a place on the length, rounded both ways
    int floor, ceil;
  };

  // cut_at(i) is where chunk i begins, i up to cp_size: whoever knows cp_size beforehand divides
  // faster. Chunk 2*cp_size-i ends as far from the end, rounded down, as chunk i begins from 0.
  template <typename CutAt>
  RINGSIDE_HD static Pieces pieces_of(int length, int /*cp_size*/, int rank, CutAt cut_at) {
    const Cut begin = cut_at(rank), end = cut_at(rank + 1);
    return {{begin.floor, end.floor}, {length - end.ceil, length - begin.ceil}};
  }
  RINGSIDE_HD static Pieces pieces(int length, int cp_size, int rank) {
    const int chunks = 2 * cp_size;
    return pieces_of(length, cp_size, rank, [=](int i) {
      const int floor = cut(length, chunks, i);  // what is left is below `chunks`: 32 bits will do
      const bool divides = static_cast<uint32_t>(length) * static_cast<uint32_t>(i) ==
                           static_cast<uint32_t>(floor) * static_cast<uint32_t>(chunks);
      return Cut{floor, divides ? floor : floor + 1};
    });
  }

  // How many rows the ranks before this one own; rank up to cp_size.
  template <typename CutAt>
  RINGSIDE_HD static int rows_before(int /*length*/, int /*cp_size*/, int rank, CutAt cut_at) {
    const Cut at = cut_at(rank);
    return at.floor + at.ceil;
  }

  // The rank that owns a position: that of the last chunk to begin at or before it, as others that
  // do are empty.
  RINGSIDE_HD static int owner(int length, int cp_size, int position) {
    const int chunks = 2 * cp_size;
    const auto chunk = static_cast<int>(((int64_t{position} + 1) * chunks - 1) / length);
    return chunk < cp_size ? chunk : chunks - 1 - chunk;
  }
};

enum class PartitionKind : int8_t {
  contiguous,
  zigzag,
  striped,
  dealt,  // no closed form: all ranks' rows follow from all lengths (balanced.h)
};

RINGSIDE_HD inline Pieces pieces_of(PartitionKind kind, int length, int cp_size, int rank) {
  switch (kind) {
    case PartitionKind::zigzag:
      return Zigzag::pieces(length, cp_size, rank);
    case PartitionKind::striped:
      return Striped::pieces(length, cp_size, rank);
    default:
      return Contiguous::pieces(length, cp_size, rank);
  }
}

struct PartitionRule {
  PartitionKind kind = PartitionKind::contiguous;
  int8_t parts = 1;        // a rank owns at most so many pieces
  bool of_stream = false;  // the packed stream is cut, by runs; else each sequence

  bool is_closed_form() const { return kind != PartitionKind::dealt; }
};

class PackedLayout;

struct NamedPartition {
  const char* name;
  PartitionRule rule;
  bool balances_causal;  // whether ranks share the work of a causal mask about equally
  const char* summary;

  Shard shard(const PackedLayout& layout, int cp_size, int rank) const;  // of a closed form
};

inline constexpr NamedPartition kPartitions[] = {
    {"contiguous", {PartitionKind::contiguous}, false, "each sequence in cp_size runs"},
    {"zigzag",
     {PartitionKind::zigzag, 2},
     true,
     "each sequence in 2*cp_size chunks, rank r owns r and 2*cp_size-1-r"},
    {"striped", {PartitionKind::striped}, true, "each sequence dealt token by token"},
    {"whole_pack",
     {PartitionKind::contiguous, 1, true},
     false,
     "the packed stream in cp_size runs"},
    {"whole_pack_zigzag",
     {PartitionKind::zigzag, 2, true},
     true,
     "the packed stream in 2*cp_size chunks, mirrored"},
    {"balanced",
     {PartitionKind::dealt},
     true,
     "short sequences whole, long ones in pieces: equal rows, equal work in kernels' blocks"},
};

}  // namespace ringside
