#include "reference/thd/chunkify.h"

#include "reference/support/errors.h"
#include "reference/thd/chunk_pieces.h"
#include "reference/thd/dual_chunk.h"
#include "reference/thd/reorder.h"

namespace ringside::thd {
namespace {

void push(Pieces& pieces, int row, int tokens) {
  pieces.cu_seqlens.push_back(pieces.cu_seqlens.back() + tokens);
  pieces.cu_seqlens_padded.push_back(row);
}

// Its padding stays with the last piece of a sequence: the next piece starts behind it.
void push_sequence(Pieces& pieces, const Runs& rows, int len, int chunk_size) {
  const ChunkPieces cut(rows, len, chunk_size);
  for (int i = 0; i < cut.count(); ++i) {
    const Interval piece = cut.piece(i);
    push(pieces, rows.row + piece.begin, piece.size());
  }
}

void push_pair(PiecePairs& pairs, const PiecePair& pair) {
  push(pairs.q, pair.q_row, pair.q_len);
  push(pairs.kv, pair.kv_row, pair.kv_len);
}

// `push_one(q, kv, len)` adds the pair of one sequence, given the rows of the two ranks.
template <typename PushOne>
void for_each_sequence(PiecePairs& pairs, const PackedLayout& layout, CpRank cp, int kv_rank,
                       PushOne push_one) {
  const Offsets local_q = local_cu_seqlens_padded(layout.cu_seqlens_padded(), cp);
  const Offsets local_k =
      local_cu_seqlens_padded(layout.cu_seqlens_padded(), {cp.cp_size, kv_rank});
  for (int s = 0; s < layout.batch(); ++s) {
    const DualChunk chunks{layout.padded_len(s), cp.cp_size};
    push_one(chunks.runs(cp.rank, local_q[s]), chunks.runs(kv_rank, local_k[s]), layout.len(s));
  }
  pairs.q.cu_seqlens_padded.push_back(local_q.back());
  pairs.kv.cu_seqlens_padded.push_back(local_k.back());
}

void check(int chunk_size, CpRank cp) {
  check_chunk_size(chunk_size);
  check_rank(cp);
}

}  // namespace

void check_below_diagonal(int chunk_size, CpRank cp, int kv_rank) {
  check(chunk_size, cp);
  require(0 <= kv_rank && kv_rank < cp.rank, "kv_rank=", kv_rank, " with rank=", cp.rank,
          "; below the diagonal the keys come from an earlier rank, 0 to rank-1. Use chunkify_p2p "
          "for the rank's own keys, chunkify_p2p_above_diagonal for those of a later rank");
}

void check_above_diagonal(int chunk_size, CpRank cp, int kv_rank) {
  check(chunk_size, cp);
  require(cp.rank < kv_rank && kv_rank < cp.cp_size, "kv_rank=", kv_rank, " with rank=", cp.rank,
          " and cp_size=", cp.cp_size,
          "; above the diagonal the keys come from a later rank, rank+1 to cp_size-1. Use "
          "chunkify_p2p for the rank's own keys, chunkify_p2p_below_diagonal for those of an "
          "earlier rank");
}

Pieces chunkify(const PackedLayout& layout, int chunk_size) {
  check_chunk_size(chunk_size);
  Pieces pieces;
  for (int s = 0; s < layout.batch(); ++s) {
    const Runs rows{{0, layout.padded_len(s)}, {}, layout.row_begin(s)};
    push_sequence(pieces, rows, layout.len(s), chunk_size);
  }
  pieces.cu_seqlens_padded.push_back(layout.num_rows());
  return pieces;
}

Pieces chunkify_p2p(const PackedLayout& layout, int chunk_size, CpRank cp) {
  check(chunk_size, cp);
  const Offsets local = local_cu_seqlens_padded(layout.cu_seqlens_padded(), cp);
  Pieces pieces;
  for (int s = 0; s < layout.batch(); ++s) {
    const Runs rows = DualChunk{layout.padded_len(s), cp.cp_size}.runs(cp.rank, local[s]);
    push_sequence(pieces, rows, layout.len(s), chunk_size);
  }
  pieces.cu_seqlens_padded.push_back(local.back());
  return pieces;
}

PiecePairs chunkify_p2p_below_diagonal(const PackedLayout& layout, int chunk_size, CpRank cp,
                                       int kv_rank) {
  check_below_diagonal(chunk_size, cp, kv_rank);
  PiecePairs pairs;
  for_each_sequence(pairs, layout, cp, kv_rank, [&](const Runs& q, const Runs& kv, int len) {
    push_pair(pairs, PiecePair::below_diagonal(q, kv, chunk_size, len));
  });
  return pairs;
}

PiecePairs chunkify_p2p_above_diagonal(const PackedLayout& layout, int chunk_size, CpRank cp,
                                       int kv_rank) {
  check_above_diagonal(chunk_size, cp, kv_rank);
  PiecePairs pairs;
  for_each_sequence(pairs, layout, cp, kv_rank, [&](const Runs& q, const Runs& kv, int len) {
    push_pair(pairs, PiecePair::above_diagonal(q, kv, chunk_size, len));
  });
  return pairs;
}

}  // namespace ringside::thd
