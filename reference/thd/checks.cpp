#include "reference/thd/checks.h"

#include "reference/support/errors.h"

namespace ringside::thd {
namespace {

constexpr int kMaxRanks = 32768;  // cp_size * 2*cp_size does not overflow

void check_rising(const char* name, const Offsets& offsets) {
  require(!offsets.empty(), name,
          " is empty; expected [batch+1] offsets. Pass [0] for a batch without sequences");
  for (size_t i = 1; i < offsets.size(); ++i)
    require(offsets[i - 1] <= offsets[i], name, "[", i, "]=", offsets[i], " is less than ", name,
            "[", i - 1, "]=", offsets[i - 1],
            "; it must never decrease. Pass cumulative sums, not lengths");
}

}  // namespace

void check_offsets(const char* name, const Offsets& offsets, int64_t num_rows) {
  check_rising(name, offsets);
  require(offsets.front() >= 0, name, "[0]=", offsets.front(),
          "; expected a row number of at least 0");
  require(offsets.back() <= num_rows, name, "[", offsets.size() - 1, "]=", offsets.back(),
          " lies beyond the ", num_rows, " rows of the array; expected at most ", num_rows,
          ". Pass the offsets of this very array, local ones for a local array");
}

void check_covers(const Offsets& cu_seqlens_padded, int64_t num_rows) {
  check_rising("cu_seqlens_padded", cu_seqlens_padded);
  require(cu_seqlens_padded.front() == 0, "cu_seqlens_padded[0]=", cu_seqlens_padded.front(),
          "; it must start at 0. Slice off the rows before the first sequence");
  const int64_t end = cu_seqlens_padded.back();
  require(end <= num_rows, "x has ", num_rows, " rows but cu_seqlens_padded ends at row ", end,
          "; they must agree. Pass the global array, all ranks' rows");
  require(end == num_rows, "x has ", num_rows, " rows but cu_seqlens_padded ends at row ", end,
          ": the last ", num_rows - end, " belong to no sequence and so to no rank. Pass x[:", end,
          "], or append ", num_rows, " to cu_seqlens_padded to make them a sequence of padding");
}

void check_cp_size(int cp_size) {
  require(1 <= cp_size && cp_size <= kMaxRanks, "cp_size=", cp_size, "; expected 1 to ", kMaxRanks,
          " ranks. Pass the size of the context-parallel group");
}

void check_rank(CpRank cp) {
  check_cp_size(cp.cp_size);
  require(0 <= cp.rank && cp.rank < cp.cp_size, "rank=", cp.rank, "; expected 0 to ",
          cp.cp_size - 1, ". Pass the rank inside the context-parallel group, not the global one");
}

void check_chunk_size(int chunk_size) {
  require(chunk_size >= 1, "chunk_size=", chunk_size,
          "; expected at least 1 token. Without chunks there is nothing to cut: keep cu_seqlens");
}

}  // namespace ringside::thd
