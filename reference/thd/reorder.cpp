#include "reference/thd/reorder.h"

#include <limits>

#include "reference/support/errors.h"
#include "reference/thd/dual_chunk.h"

namespace ringside::thd {
namespace {

DualChunk dual_chunk(const Offsets& cu_seqlens_padded, size_t s, int cp_size) {
  return {cu_seqlens_padded[s + 1] - cu_seqlens_padded[s], cp_size};
}

// Appends the rank's local rows as copies to row `to` and on; returns where they end.
int64_t append_rank(RowCopies& copies, const Offsets& cu_seqlens_padded, CpRank cp, int64_t to) {
  for (size_t s = 0; s + 1 < cu_seqlens_padded.size(); ++s) {
    const Runs runs = dual_chunk(cu_seqlens_padded, s, cp.cp_size).runs(cp.rank, 0);
    for (const Interval run : {runs.first, runs.second}) {
      append(copies, {int64_t{cu_seqlens_padded[s]} + run.begin, to, run.size()});
      to += run.size();
    }
  }
  return to;
}

void check_padded(const Offsets& cu_seqlens_padded) {
  check_covers(cu_seqlens_padded, cu_seqlens_padded.empty() ? 0 : cu_seqlens_padded.back());
}

}  // namespace

RowCopies sequence_order_to_cp_rank_order(const Offsets& cu_seqlens_padded, int cp_size) {
  check_cp_size(cp_size);
  check_padded(cu_seqlens_padded);
  RowCopies copies;
  int64_t to = 0;
  for (int rank = 0; rank < cp_size; ++rank)
    to = append_rank(copies, cu_seqlens_padded, {cp_size, rank}, to);
  return copies;
}

RowCopies cp_rank_order_to_sequence_order(const Offsets& cu_seqlens_padded, int cp_size) {
  return inverse(sequence_order_to_cp_rank_order(cu_seqlens_padded, cp_size));
}

std::vector<int32_t> partition_indices(const Offsets& cu_seqlens_padded, CpRank cp) {
  check_rank(cp);
  check_padded(cu_seqlens_padded);
  RowCopies copies;
  const int64_t rows = append_rank(copies, cu_seqlens_padded, cp, 0);
  std::vector<int32_t> indices;
  indices.reserve(static_cast<size_t>(rows));
  for (const RowCopy& copy : copies)
    for (int64_t i = 0; i < copy.rows; ++i) indices.push_back(static_cast<int32_t>(copy.from + i));
  return indices;
}

Offsets local_cu_seqlens_padded(const Offsets& cu_seqlens_padded, CpRank cp) {
  Offsets local{0};
  for (size_t s = 0; s + 1 < cu_seqlens_padded.size(); ++s)
    local.push_back(local.back() +
                    dual_chunk(cu_seqlens_padded, s, cp.cp_size).local_rows(cp.rank));
  return local;
}

RowCopies valid_token_copies(const Offsets& cu_seqlens_padded, const Offsets& cu_seqlens,
                             int64_t num_rows) {
  check_offsets("cu_seqlens_padded", cu_seqlens_padded, num_rows);
  check_offsets("cu_seqlens", cu_seqlens, std::numeric_limits<int32_t>::max());
  require(cu_seqlens.size() == cu_seqlens_padded.size(), "cu_seqlens has ", cu_seqlens.size(),
          " entries and cu_seqlens_padded has ", cu_seqlens_padded.size(),
          "; both must have [batch+1]. Pass one entry a sequence in each, plus the leading one");
  RowCopies copies;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int32_t tokens = cu_seqlens[s + 1] - cu_seqlens[s];
    const int32_t rows = cu_seqlens_padded[s + 1] - cu_seqlens_padded[s];
    require(tokens <= rows, "sequence ", s, " has ", tokens, " tokens but only ", rows,
            " rows (cu_seqlens_padded[", s, "]=", cu_seqlens_padded[s], ", cu_seqlens_padded[",
            s + 1, "]=", cu_seqlens_padded[s + 1],
            "); a sequence must end before the next begins. Did you swap the two arguments?");
    append(copies, {cu_seqlens_padded[s], cu_seqlens_padded[s], tokens});
  }
  return copies;
}

}  // namespace ringside::thd
