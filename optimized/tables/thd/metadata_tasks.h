// What the reference computes for one sequence after the other, for one sequence alone. Rows are
// counted from the sequence's first in the local buffers; where that lies, sums over the sequences
// before it tell. Offsets lie on the device, unchecked: lengths are clamped, so that every loop
// ends. Device code includes this file too.
#pragma once

#include "optimized/tables/device_layout.h"
#include "optimized/tables/thd/dual_chunks.h"
#include "reference/thd/chunk_pieces.h"
#include "reference/thd/step_entry.h"

namespace ringside::thd {

struct LocalRows {
  int q = 0, kv = 0;
};

inline constexpr int kAllRanks = -1;  // as a rank: everybody's rows, in sequence order

RINGSIDE_HD inline Runs local_runs(const DualChunks& chunks, int rows, int rank) {
  if (rank == kAllRanks) return {{0, rows}, {}, 0};
  return chunks.runs(rows, rank, 0);
}

enum class Half : int8_t { both, first, second };  // of a rank's rows of a sequence

// Both steps of an all-gather, or one of a ring.
template <bool kOneEntryEach>
struct StepTask {
  static constexpr bool kOneEntry = kOneEntryEach;
  DeviceLayout layout_q, layout_k;
  Mask mask;
  DualChunks chunks = 1;
  int rank = 0, kv_rank = kAllRanks;
  Half half[2] = {Half::both, Half::both};  // whose queries take part in a step

  RINGSIDE_HD int batch() const { return layout_q.batch(); }
  RINGSIDE_HD LocalRows rows(int s) const { return {queries(s).num_rows(), keys(s).num_rows()}; }

  class Walk {  // through the entries of a sequence
   public:
    RINGSIDE_HD Walk(const StepTask& task, int s, int step)
        : sequence_(task.sequence(s, step)), walk_(sequence_) {}
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
  RINGSIDE_HD Runs queries(int s) const { return local_runs(chunks, layout_q.rows(s), rank); }
  RINGSIDE_HD Runs keys(int s) const { return local_runs(chunks, layout_k.rows(s), kv_rank); }
  RINGSIDE_HD StepSequence sequence(int s, int step) const {
    Runs q = queries(s);
    if (half[step] == Half::first) q = q.first_half();
    if (half[step] == Half::second) q = q.second_half();
    return {mask, layout_q.tokens(s), layout_k.tokens(s), q, keys(s)};
  }
};

// A pair a sequence: chunked attention below or above the diagonal of a ring.
struct PairTask {
  static constexpr bool kOneEntry = true;
  DeviceLayout layout;
  int chunk_size = 1;
  DualChunks chunks = 1;
  int rank = 0, kv_rank = 0;

  RINGSIDE_HD int batch() const { return layout.batch(); }
  RINGSIDE_HD LocalRows rows(int s) const {
    const int n = layout.rows(s);
    return {local_runs(chunks, n, rank).num_rows(), local_runs(chunks, n, kv_rank).num_rows()};
  }

  class Walk {
   public:
    RINGSIDE_HD Walk(const PairTask& task, int s, int) {
      const int rows = task.layout.rows(s), len = task.layout.tokens(s), size = task.chunk_size;
      const Runs q = local_runs(task.chunks, rows, task.rank);
      const Runs kv = local_runs(task.chunks, rows, task.kv_rank);
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
  int chunk_size = 1;
  DualChunks chunks = 1;
  int rank = kAllRanks;

  RINGSIDE_HD int batch() const { return layout.batch(); }
  RINGSIDE_HD ChunkPieces pieces(int s) const {
    return {local_runs(chunks, layout.rows(s), rank), layout.tokens(s), chunk_size};
  }
};

// The global row of each of a rank's rows.
struct IndexTask {
  DeviceOffsets starts;
  int num_rows = 0;
  DualChunks chunks = 1;
  int rank = 0;

  RINGSIDE_HD int batch() const { return starts.batch(); }
  RINGSIDE_HD Runs runs(int s) const {
    return local_runs(chunks, starts.length(s, num_rows), rank);
  }
};

}  // namespace ringside::thd
