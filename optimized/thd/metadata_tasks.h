// What the reference computes for one sequence after the other, for one sequence alone: its rows in
// the local buffers, and its entries given where these begin. Offsets lie on the device, unchecked:
// lengths are clamped, so that every loop ends. Device code includes this file too.
#pragma once

#include "optimized/thd/offsets.h"
#include "reference/thd/chunk_pieces.h"
#include "reference/thd/step_entry.h"

namespace ringside::thd {

struct DeviceLayout {
  DeviceOffsets valid, padded;  // cu_seqlens, cu_seqlens_padded
  int num_rows = 0;             // no sequence is longer

  RINGSIDE_HD int batch() const { return padded.batch(); }
  RINGSIDE_HD int rows(int s) const { return padded.length(s, num_rows); }
  RINGSIDE_HD int tokens(int s) const { return valid.length(s, rows(s)); }
};

// Of one sequence, or summed over those before it. Unsigned: meaningless lengths wrap around.
struct LocalRows {
  unsigned q = 0, kv = 0;
};

inline constexpr int kAllRanks = -1;  // as a rank: everybody's rows, in sequence order

RINGSIDE_HD inline Runs local_runs(int rows, int cp_size, int rank, unsigned first) {
  const int row = static_cast<int>(first);
  if (rank == kAllRanks) return {{0, rows}, {}, row};
  return DualChunk{rows, cp_size}.runs(rank, row);
}

enum class Half : int8_t { both, first, second };  // of a rank's rows of a sequence

// Both steps of an all-gather, or one of a ring.
template <bool kOneEntry>
struct StepTask {
  static constexpr int kMostSteps = 2;
  DeviceLayout layout_q, layout_k;
  Mask mask;
  int cp_size = 1, rank = 0, kv_rank = kAllRanks;
  Half half[kMostSteps] = {Half::both, Half::both};  // whose queries take part
  int num_steps = 1;

  RINGSIDE_HD int batch() const { return layout_q.batch(); }
  RINGSIDE_HD LocalRows rows(int s) const {
    const LocalRows none;
    return {static_cast<unsigned>(queries(s, none).num_rows()),
            static_cast<unsigned>(keys(s, none).num_rows())};
  }

  class Walk {  // through the entries of a sequence
   public:
    RINGSIDE_HD Walk(const StepTask& task, int s, int step, const LocalRows& before)
        : sequence_(task.sequence(s, step, before)), walk_(sequence_) {}
    RINGSIDE_HD bool next(StepEntry& entry) {
      if constexpr (!kOneEntry) return walk_.next(entry);
      const bool first = !done_;
      if (first) entry = sequence_.only_entry();
      done_ = true;
      return first;
    }

   private:
    StepSequence sequence_;
    EntryWalk walk_;
    bool done_ = false;
  };

 private:
  RINGSIDE_HD Runs queries(int s, const LocalRows& before) const {
    return local_runs(layout_q.rows(s), cp_size, rank, before.q);
  }
  RINGSIDE_HD Runs keys(int s, const LocalRows& before) const {
    return local_runs(layout_k.rows(s), cp_size, kv_rank, before.kv);
  }
  RINGSIDE_HD StepSequence sequence(int s, int step, const LocalRows& before) const {
    Runs q = queries(s, before);
    if (half[step] == Half::first) q = q.first_half();
    if (half[step] == Half::second) q = q.second_half();
    return {mask, layout_q.tokens(s), layout_k.tokens(s), q, keys(s, before)};
  }
};

// A pair a sequence: chunked attention below or above the diagonal of a ring.
struct PairTask {
  static constexpr int kMostSteps = 1;
  DeviceLayout layout;
  int chunk_size = 1, cp_size = 1, rank = 0, kv_rank = 0;
  int num_steps = 1;

  RINGSIDE_HD int batch() const { return layout.batch(); }
  RINGSIDE_HD LocalRows rows(int s) const {
    const DualChunk chunk{layout.rows(s), cp_size};
    return {static_cast<unsigned>(chunk.local_rows(rank)),
            static_cast<unsigned>(chunk.local_rows(kv_rank))};
  }

  class Walk {
   public:
    RINGSIDE_HD Walk(const PairTask& task, int s, int, const LocalRows& before) {
      const int rows = task.layout.rows(s), len = task.layout.tokens(s), size = task.chunk_size;
      const Runs q = local_runs(rows, task.cp_size, task.rank, before.q);
      const Runs kv = local_runs(rows, task.cp_size, task.kv_rank, before.kv);
      pair_ = task.kv_rank < task.rank ? PiecePair::below_diagonal(q, kv, size, len)
                                       : PiecePair::above_diagonal(q, kv, size, len);
    }
    RINGSIDE_HD bool next(StepEntry& entry) {
      entry = {pair_.q_row, pair_.q_len, pair_.kv_row, pair_.kv_len};
      const bool first = !done_;
      done_ = true;
      return first;
    }

   private:
    PiecePair pair_;
    bool done_ = false;
  };
};

// The attention chunks of a rank's rows, or of all.
struct PieceTask {
  DeviceLayout layout;
  int chunk_size = 1, cp_size = 1, rank = kAllRanks;

  RINGSIDE_HD int batch() const { return layout.batch(); }
  RINGSIDE_HD ChunkPieces pieces(int s) const {
    const Runs rows = local_runs(layout.rows(s), cp_size, rank, 0);
    return {rows, layout.tokens(s), chunk_size};
  }
};

// The global row of each of a rank's rows.
struct IndexTask {
  DeviceOffsets starts;
  int num_rows = 0, cp_size = 1, rank = 0;

  RINGSIDE_HD int batch() const { return starts.batch(); }
  RINGSIDE_HD DualChunk chunk(int s) const { return {starts.length(s, num_rows), cp_size}; }
};

}  // namespace ringside::thd
