// Chunked attention as ordinary varlen attention: every attention chunk becomes a sequence.
//
// Chunks of chunk_size tokens restart at each sequence, at global positions, wherever a rank's rows
// happen to be cut. The four functions carry the names of Transformer Engine's pull request 1887,
// but count valid tokens, so padding is exact, and emit only pieces that hold a token. That
// request's kernels emit empty filler entries up to a fixed capacity; and its diagonal kernel
// merges the chunks in the interior of a half (cp_size 2, 24 tokens, chunk_size 2: cuts
// 0,2,4,6,8,12 on rank 0 in place of ..,8,10,12).
#pragma once

#include <cstdint>
#include <vector>

#include "reference/rows/packed_layout.h"
#include "reference/thd/checks.h"

namespace ringside::thd {

struct Pieces {  // [pieces+1] each: sums of valid tokens; the row where each piece starts, last the
                 // rows
  std::vector<int32_t> cu_seqlens{0}, cu_seqlens_padded;
};

// The packed stream, each piece causal. A sequence without tokens stays one empty piece.
Pieces chunkify(const PackedLayout& layout, int chunk_size);

// A rank's own rows against themselves, each piece causal: a chunk that lies partly in the rank's
// first and partly in its second half is one piece if those parts meet in its rows.
Pieces chunkify_p2p(const PackedLayout& layout, int chunk_size, CpRank cp);

struct PiecePairs {  // piece b of q sees all of piece b of kv; [batch+1], empty where nothing is
                     // seen
  Pieces q, kv;
};

void check_below_diagonal(int chunk_size, CpRank cp, int kv_rank);
void check_above_diagonal(int chunk_size, CpRank cp, int kv_rank);

// The rank's rows against those of an earlier rank, or of a later one: at most one attention chunk
// of a sequence has queries here and keys there. Rows are those of the two ranks' whole buffers.
PiecePairs chunkify_p2p_below_diagonal(const PackedLayout& layout, int chunk_size, CpRank cp,
                                       int kv_rank);
PiecePairs chunkify_p2p_above_diagonal(const PackedLayout& layout, int chunk_size, CpRank cp,
                                       int kv_rank);

}  // namespace ringside::thd
