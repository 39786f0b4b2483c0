#include "reference/thd/chunkify.h"

#include <algorithm>

#include "reference/errors.h"
#include "reference/thd/dual_chunk.h"
#include "reference/thd/reorder.h"

namespace ringside::thd {
namespace {

void push(Pieces& pieces, int row, int tokens) {
  pieces.cu_seqlens.push_back(pieces.cu_seqlens.back() + tokens);
  pieces.cu_seqlens_padded.push_back(row);
}

// Cuts the valid rows of a sequence wherever they enter another attention chunk. Its padding stays
// with its last piece: the next piece starts behind it.
void push_sequence(Pieces& pieces, const Runs& rows, int len, int chunk_size) {
  const int valid = rows.rows_below(len);
  if (valid == 0) push(pieces, rows.row, 0);
  for (int begin = 0; begin < valid;) {
    const int64_t next_chunk = (rows.position_at(begin) / chunk_size + int64_t{1}) * chunk_size;
    const int end = std::min(rows.rows_below(next_chunk), valid);
    push(pieces, rows.row + begin, end - begin);
    begin = end;
  }
}

struct Shared {  // an attention chunk, and how many tokens the sequence has
  int64_t chunk;
  int chunk_size, len;

  Interval rows(const Runs& runs) const {
    const int64_t begin = chunk * chunk_size, end = std::min(begin + chunk_size, int64_t{len});
    return {runs.rows_below(begin), runs.rows_below(end)};
  }
};

void push_pair(PiecePairs& pairs, const Runs& q, const Runs& kv, const Shared& shared) {
  Interval q_rows = shared.rows(q), kv_rows = shared.rows(kv);
  if (q_rows.size() <= 0 || kv_rows.size() <= 0) q_rows = kv_rows = {};
  push(pairs.q, q.row + q_rows.begin, q_rows.size());
  push(pairs.kv, kv.row + kv_rows.begin, kv_rows.size());
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
  check(chunk_size, cp);
  require(0 <= kv_rank && kv_rank < cp.rank, "kv_rank=", kv_rank, " with rank=", cp.rank,
          "; below the diagonal the keys come from an earlier rank, 0 to rank-1. Use chunkify_p2p "
          "for the rank's own keys, chunkify_p2p_above_diagonal for those of a later rank");
  PiecePairs pairs;
  for_each_sequence(pairs, layout, cp, kv_rank, [&](const Runs& q, const Runs& kv, int len) {
    // Later queries may see keys of the first half only, and of these only the last chunk reaches
    // on.
    const Runs keys = kv.first_half();
    const int last_key = std::max(keys.first.end - 1, 0);  // if it is padding, so are the queries
    push_pair(pairs, q, keys, {last_key / chunk_size, chunk_size, len});
  });
  return pairs;
}

PiecePairs chunkify_p2p_above_diagonal(const PackedLayout& layout, int chunk_size, CpRank cp,
                                       int kv_rank) {
  check(chunk_size, cp);
  require(cp.rank < kv_rank && kv_rank < cp.cp_size, "kv_rank=", kv_rank, " with rank=", cp.rank,
          " and cp_size=", cp.cp_size,
          "; above the diagonal the keys come from a later rank, rank+1 to cp_size-1. Use "
          "chunkify_p2p for the rank's own keys, chunkify_p2p_below_diagonal for those of an "
          "earlier rank");
  PiecePairs pairs;
  for_each_sequence(pairs, layout, cp, kv_rank, [&](const Runs& q, const Runs& kv, int len) {
    // The second half lies behind all of those keys; only the chunk of its first query reaches
    // back.
    const Runs queries = q.second_half();
    push_pair(pairs, queries, kv, {queries.first.begin / chunk_size, chunk_size, len});
  });
  return pairs;
}

}  // namespace ringside::thd
