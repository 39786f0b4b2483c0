// Between sequence order and the order of context-parallel ranks, and the copy of valid rows.
//
// Sequence order is the packed order of PackedLayout. Rank order is every rank's local rows, one
// rank after the other, in dual chunks: what an all-gather over the ranks leaves behind. These are
// Transformer Engine's thd_cp_reorder_sequences, thd_get_partitioned_indices and
// thd_cp_copy_valid_tokens (its pull request 2829); here no length has to be divisible. All return
// copies to make, so that the same moves serve any array.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/thd/checks.h"
#include "reference/thd/copy_rows.h"

namespace ringside::thd {

RowCopies sequence_order_to_cp_rank_order(const Offsets& cu_seqlens_padded, int cp_size);
RowCopies cp_rank_order_to_sequence_order(const Offsets& cu_seqlens_padded, int cp_size);

// The global row of each of the rank's local rows.
std::vector<int32_t> partition_indices(const Offsets& cu_seqlens_padded, CpRank cp);

// Where each sequence's local rows start on a rank and, last, how many there are.
Offsets local_cu_seqlens_padded(const Offsets& cu_seqlens_padded, CpRank cp);

// The first cu_seqlens[s+1]-cu_seqlens[s] rows from row cu_seqlens_padded[s] on, of every sequence.
RowCopies valid_token_copies(const Offsets& cu_seqlens_padded, const Offsets& cu_seqlens,
                             int64_t num_rows);

}  // namespace ringside::thd
