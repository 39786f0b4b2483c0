// What a varlen attention kernel is told about one step of context parallelism in dual chunks.
//
// An entry is what such a kernel calls a sequence: seqused_q[b] query rows from local row
// cu_seqlens_q_padded[b] on, seqused_k[b] key rows from row cu_seqlens_kv_padded[b] on of the
// resident keys, and a window of its own under FlashAttention's bottom-right contract
// (step_entry.h). No query row is in two entries of a step, so one kernel call computes a step;
// what the steps yield is merged by lse. A row in no entry sees nothing in this step.
//
// Where one window can say it, and so for full and causal masks always, a sequence is one entry,
// and the arrays are Transformer Engine's (the two steps of its pull request 2829; the sections of
// its ring). Where it cannot (chunks, or a window that looks across the gap between a rank's two
// chunks) a sequence is several. A sequence that takes no part keeps one empty entry.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "reference/rows/mask.h"
#include "reference/rows/packed_layout.h"
#include "reference/thd/checks.h"

namespace ringside::thd {

struct StepMetadata {
  const char* section = "all";
  int kv_rank = -1;               // whose keys are resident; -1: everybody's, in sequence order
  std::vector<int32_t> sequence;  // [entries] which sequence of the layout
  std::vector<int32_t> cu_seqlens_q, cu_seqlens_kv;                // [entries+1] sums of seqused
  std::vector<int32_t> cu_seqlens_q_padded, cu_seqlens_kv_padded;  // [entries+1] first rows; rows
  std::vector<int32_t> seqused_q, seqused_k;                       // [entries]
  std::vector<int32_t> window_left, window_right;                  // [entries] -1: hides nothing
  int max_seqlen_q = 0, max_seqlen_kv = 0;                         // largest seqused
};

struct MaskedLayouts {
  const PackedLayout &q, &k;
  Mask mask;
};

// Keys gathered from all ranks, in sequence order; step i has the queries of the rank's i-th chunk.
std::array<StepMetadata, 2> all_gather_step_metadata(const MaskedLayouts& layouts, CpRank cp);

// Whose keys are resident in a step of a ring. Causal masks over equal layouts leave whole halves
// of a step unseen: the peers name these steps.
struct RingStep {
  int kv_rank = 0;
  const char* section = "all";
  bool is_upper() const { return section == std::string_view("upper"); }
};
RingStep ring_step(const Mask& mask, bool equal_layouts, CpRank cp, int step);

// Keys of rank (rank - step) mod cp_size, in that rank's order.
StepMetadata p2p_step_metadata(const MaskedLayouts& layouts, CpRank cp, int step);

}  // namespace ringside::thd
