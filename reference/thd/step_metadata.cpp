#include "reference/thd/step_metadata.h"

#include <algorithm>

#include "reference/support/errors.h"
#include "reference/thd/dual_chunk.h"
#include "reference/thd/reorder.h"
#include "reference/thd/step_entry.h"
#include "reference/verify/validate.h"

namespace ringside::thd {
namespace {

void check(const MaskedLayouts& layouts, CpRank cp) {
  check_problem({layouts.q, layouts.k, layouts.mask});
  check_rank(cp);
}

void push(StepMetadata& step, int sequence, const StepEntry& entry) {
  step.sequence.push_back(sequence);
  step.cu_seqlens_q.push_back(step.cu_seqlens_q.back() + entry.q_len);
  step.cu_seqlens_kv.push_back(step.cu_seqlens_kv.back() + entry.kv_len);
  step.cu_seqlens_q_padded.push_back(entry.q_row);
  step.cu_seqlens_kv_padded.push_back(entry.kv_row);
  step.seqused_q.push_back(entry.q_len);
  step.seqused_k.push_back(entry.kv_len);
  step.window_left.push_back(entry.window_left());
  step.window_right.push_back(entry.window_right());
  step.max_seqlen_q = std::max(step.max_seqlen_q, entry.q_len);
  step.max_seqlen_kv = std::max(step.max_seqlen_kv, entry.kv_len);
}

struct Resident {  // what a step has of one sequence
  Runs q, kv;
};
struct NumRows {  // of the two buffers
  int q, kv;
};

template <typename ResidentOf>
void fill(StepMetadata& step, const MaskedLayouts& layouts, NumRows rows, ResidentOf resident_of) {
  step.cu_seqlens_q = step.cu_seqlens_kv = {0};
  for (int s = 0; s < layouts.q.batch(); ++s) {
    const Resident r = resident_of(s);
    EntryWalk walk({layouts.mask, layouts.q.len(s), layouts.k.len(s), r.q, r.kv});
    for (StepEntry entry; walk.next(entry);) push(step, s, entry);
  }
  step.cu_seqlens_q_padded.push_back(rows.q);
  step.cu_seqlens_kv_padded.push_back(rows.kv);
}

}  // namespace

RingStep ring_step(const Mask& mask, bool equal_layouts, CpRank cp, int step) {
  check_mask(mask);
  check_rank(cp);
  require(0 <= step && step < cp.cp_size, "step=", step, "; expected 0 to ", cp.cp_size - 1,
          ": a ring has cp_size steps, step i with the keys of rank (rank - i) mod cp_size");
  const int kv_rank = (cp.rank - step + cp.cp_size) % cp.cp_size;
  if (!mask.ends_at_the_query() || !equal_layouts) return {kv_rank, "all"};
  return {kv_rank, kv_rank == cp.rank ? "diagonal" : kv_rank < cp.rank ? "lower" : "upper"};
}

std::array<StepMetadata, 2> all_gather_step_metadata(const MaskedLayouts& layouts, CpRank cp) {
  check(layouts, cp);
  const Offsets local = local_cu_seqlens_padded(layouts.q.cu_seqlens_padded(), cp);
  std::array<StepMetadata, 2> steps;
  for (int half = 0; half < 2; ++half) {
    steps[half].section = half == 0 ? "first_half" : "second_half";
    fill(steps[half], layouts, {local.back(), layouts.k.num_rows()}, [&](int s) {
      const Runs queries = DualChunk{layouts.q.padded_len(s), cp.cp_size}.runs(cp.rank, local[s]);
      const Runs keys{{0, layouts.k.padded_len(s)}, {}, layouts.k.row_begin(s)};
      return Resident{half == 0 ? queries.first_half() : queries.second_half(), keys};
    });
  }
  return steps;
}

StepMetadata p2p_step_metadata(const MaskedLayouts& layouts, CpRank cp, int step) {
  check(layouts, cp);
  const RingStep ring = ring_step(layouts.mask, layouts.q == layouts.k, cp, step);
  const int kv_rank = ring.kv_rank;
  const bool upper = ring.is_upper();
  StepMetadata metadata;
  metadata.kv_rank = kv_rank;
  metadata.section = ring.section;
  const Offsets local_q = local_cu_seqlens_padded(layouts.q.cu_seqlens_padded(), cp);
  const Offsets local_k =
      local_cu_seqlens_padded(layouts.k.cu_seqlens_padded(), {cp.cp_size, kv_rank});
  fill(metadata, layouts, {local_q.back(), local_k.back()}, [&](int s) {
    const Runs queries = DualChunk{layouts.q.padded_len(s), cp.cp_size}.runs(cp.rank, local_q[s]);
    const Runs keys = DualChunk{layouts.k.padded_len(s), cp.cp_size}.runs(kv_rank, local_k[s]);
    // The first half sees nothing in an upper step; left out, even an empty entry lies behind it.
    return Resident{upper ? queries.second_half() : queries, keys};
  });
  return metadata;
}

}  // namespace ringside::thd
