// Where attention chunks cut the rows of one sequence in one buffer, piece by piece in closed form.
//
// Chunks of chunk_size tokens restart at each sequence, at global positions. Integers only, nothing
// from std: device code includes this file too.
#pragma once

#include "reference/thd/dual_chunk.h"

namespace ringside::thd {

// Each piece is a part of an attention chunk; a chunk that reaches from one run to the other is one
// piece, as its rows meet. A sequence without tokens is one empty piece.
struct ChunkPieces {
  Runs rows;
  int chunk_size = 1;
  int valid = 0;                    // rows that hold tokens
  int in_first = 0, in_second = 0;  // chunks that these cut
  int64_t first_chunk = 0, second_chunk = 0;
  int shared = 0;  // 1 if one chunk is the last of one and first of the other

  RINGSIDE_HD ChunkPieces(const Runs& runs, int len, int size)
      : rows(runs), chunk_size(size), valid(runs.rows_below(len)) {
    const int of_first = valid < rows.first.size() ? valid : rows.first.size();
    first_chunk = rows.first.begin / chunk_size;
    second_chunk = rows.second.begin / chunk_size;
    if (of_first > 0)
      in_first = static_cast<int>((rows.first.begin + of_first - 1) / chunk_size - first_chunk) + 1;
    if (valid > of_first)
      in_second = static_cast<int>((rows.second.begin + (valid - of_first) - 1) / chunk_size -
                                   second_chunk) +
                  1;
    shared = in_first > 0 && in_second > 0 && first_chunk + in_first - 1 == second_chunk;
  }

  RINGSIDE_HD int count() const { return valid == 0 ? 1 : in_first + in_second - shared; }

  RINGSIDE_HD Interval piece(int i) const {  // rows, counted from the sequence's first
    if (valid == 0) return {};
    const int64_t chunk = i < in_first ? first_chunk + i : second_chunk + (i - in_first) + shared;
    const int end = rows.rows_below((chunk + 1) * chunk_size);
    return {rows.rows_below(chunk * chunk_size), end < valid ? end : valid};
  }
};

// How many pieces `batch` sequences with `rows` rows in all can have at most: a run of m rows cuts
// up to m / chunk_size + 2 chunks, and every piece but an empty one has a row.
RINGSIDE_HD inline int64_t most_pieces(int64_t batch, int64_t rows, int chunk_size) {
  const int64_t by_chunks = 4 * batch + rows / chunk_size;
  return by_chunks < batch + rows ? by_chunks : batch + rows;
}

// Rows of q that see all those of kv: a row of each buffer, and how many follow.
struct PiecePair {
  int q_row = 0, q_len = 0, kv_row = 0, kv_len = 0;

  // What lies in an attention chunk; nothing unless there is some of both.
  RINGSIDE_HD static PiecePair of_chunk(const Runs& q, const Runs& kv, int64_t chunk,
                                        int chunk_size, int len) {
    const int64_t begin = chunk * chunk_size;
    const int64_t end = begin + chunk_size < len ? begin + chunk_size : int64_t{len};
    const Interval q_rows{q.rows_below(begin), q.rows_below(end)};
    const Interval kv_rows{kv.rows_below(begin), kv.rows_below(end)};
    if (q_rows.size() <= 0 || kv_rows.size() <= 0) return {q.row, 0, kv.row, 0};
    return {q.row + q_rows.begin, q_rows.size(), kv.row + kv_rows.begin, kv_rows.size()};
  }

  // Keys of an earlier rank. Later queries may see those of its first half only, and of these only
  // the chunk of the last one reaches on; if that one is padding, so are the queries.
  RINGSIDE_HD static PiecePair below_diagonal(const Runs& q, const Runs& kv, int chunk_size,
                                              int len) {
    const int last_key = kv.first.end > 0 ? kv.first.end - 1 : 0;
    return of_chunk(q, kv.first_half(), last_key / chunk_size, chunk_size, len);
  }

  // Keys of a later rank. The second half lies behind all of them; only the chunk of its first
  // query reaches back.
  RINGSIDE_HD static PiecePair above_diagonal(const Runs& q, const Runs& kv, int chunk_size,
                                              int len) {
    const Runs queries = q.second_half();
    return of_chunk(queries, kv, queries.first.begin / chunk_size, chunk_size, len);
  }
};

}  // namespace ringside::thd
