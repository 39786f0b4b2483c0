// What attention kernels are told, computed on the device from offsets that lie there: one launch
// each, nothing read back, nothing allocated; may be captured in a graph.
//
// How many entries there are depends on the lengths. Arrays hold `capacity` of them: behind the
// last one they go on with empty ones (no queries, no keys, at the end of the buffers), so that an
// attention kernel may be launched over all. `count` says how many there are; more than capacity
// means that some are missing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "optimized/tables/thd/metadata_tasks.h"

namespace ringside::thd {

// In device memory; null where nobody asks.
struct EntryArrays {
  int32_t *sequence = nullptr, *seqused_q = nullptr, *seqused_k = nullptr;  // [capacity]
  int32_t *window_left = nullptr, *window_right = nullptr;                  // [capacity]
  int32_t *cu_seqlens_q = nullptr, *cu_seqlens_kv = nullptr;                // [capacity + 1]
  int32_t *cu_seqlens_q_padded = nullptr, *cu_seqlens_kv_padded = nullptr;  // [capacity + 1]
  int32_t* count = nullptr;                                                 // [1]
  int capacity = 0;
};

struct PieceArrays {
  int32_t *cu_seqlens = nullptr, *cu_seqlens_padded = nullptr;  // [capacity + 1]
  int32_t* count = nullptr;                                     // [1]
  int capacity = 0;
};

struct IndexArrays {
  int32_t* rows = nullptr;   // [capacity]; -1 behind the last
  int32_t* count = nullptr;  // [1]
  int capacity = 0;
};

// Of `workspace`, in uint32.
int64_t metadata_workspace_size();

// out: of each step, one or two.
template <bool kOneEntry>
void write_steps(const StepTask<kOneEntry>& task, std::span<const EntryArrays> out,
                 uint32_t* workspace, cudaStream_t stream);
void write_pairs(const PairTask& task, const EntryArrays& out, uint32_t* workspace,
                 cudaStream_t stream);
void write_pieces(const PieceTask& task, const PieceArrays& out, uint32_t* workspace,
                  cudaStream_t stream);
void write_indices(const IndexTask& task, const IndexArrays& out, uint32_t* workspace,
                   cudaStream_t stream);

}  // namespace ringside::thd
