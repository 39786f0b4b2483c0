// What the peers' primitives can be given wrong. They take plain offsets, not always a
// PackedLayout.
#pragma once

#include <cstdint>
#include <vector>

namespace ringside::thd {

using Offsets = std::vector<int32_t>;  // [batch+1]

// Never falling and inside [0, num_rows]. They need not start at 0, nor end at num_rows.
void check_offsets(const char* name, const Offsets& offsets, int64_t num_rows);

// Never falling, from 0 up to exactly the rows of x.
void check_covers(const Offsets& cu_seqlens_padded, int64_t num_rows);

struct CpRank {  // one rank of a context-parallel group
  int cp_size = 1, rank = 0;
};
void check_cp_size(int cp_size);
void check_rank(CpRank cp);
void check_chunk_size(int chunk_size);

}  // namespace ringside::thd
