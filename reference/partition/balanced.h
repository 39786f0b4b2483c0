// The partition for packs: short documents whole on one rank, long ones in pieces.
//
// Equal rows on every rank (at most 1.01 of the mean, one row more where that is less than a row),
// and equal work, counted in what a kernel pays: blocks of queries by blocks of keys that hold a
// visible pair. Pieces begin at multiples of a block, and there are few: the longest that balance.
//
// No closed form: who owns a row follows from all lengths, the mask and the number of ranks, and
// from nothing else; ties are broken by index, so every rank deals alike. n documents and pieces
// take O(n log n).
#pragma once

#include <vector>

#include "reference/plan/plan.h"

namespace ringside {

struct OwnedRows {  // [cp_size] what each rank owns
  std::vector<Shard> q, k;
};

// Queries are dealt; keys follow them: the rank that owns the rows of a document from one share of
// its length to another owns its keys between the same shares. Keys of documents without queries go
// whole to the rank with fewest keys.
OwnedRows deal_balanced(const Problem& problem, int cp_size);

}  // namespace ringside
