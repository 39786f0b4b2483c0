// The tables of a program whose lengths only the device knows: who owns which rows, which segments
// lie in which buffer, and the work lists, filled from cu_seqlens by one launch.
//
// Sizes depend on capacities alone, so that a captured graph can be replayed with other lengths.
// Every function here fills one entry, on the host or on the device; length_tables.cu calls them
// from one cooperative kernel with a barrier between phases, length_tables_test.cpp in plain loops:
//
//   1  home_segments and rows: prefix sums over sequences, for every rank
//   2  partner segments, maps of rows, and the bucket of every slot's item
//   3  items, heaviest bucket first
//
// A slot is a place for one item: block b of the j-th segment of a run has slot row_j / R + j + b,
// R rows an item. Slots of different segments never meet, so nobody has to count blocks first.
#pragma once

#include <cstdint>

#include "optimized/block_walk.h"
#include "optimized/move_tables.h"
#include "optimized/partition_rows.h"
#include "optimized/work_list.h"

namespace ringside {

// Lengths in the caller's device memory, [batch+1] each; padded ones may be the same array.
struct DeviceLengths {
  const int32_t *cu_seqlens_q = nullptr, *cu_seqlens_q_padded = nullptr;
  const int32_t *cu_seqlens_k = nullptr, *cu_seqlens_k_padded = nullptr;
  int batch = 0;
};

enum class WorkSide : int8_t { queries, keys };  // whose rows an item is a block of

struct LengthTables {
  static constexpr int kBuckets = 128, kNoItem = 255;

  struct Side {
    int max_rows = 0;                                             // of the global array
    int rank_rows = 0;                                            // of a rank's home buffer
    int home_rows = 0;                                            // of all, with gaps
    int32_t *cu_seqlens = nullptr, *cu_seqlens_padded = nullptr;  // [max_batch+1], checked copies
    Segment* segments = nullptr;                // [cp_size][parts * max_batch] home segments
    const int32_t* home_row_of_rank = nullptr;  // [cp_size]
    int32_t *global_of_home = nullptr, *home_of_global = nullptr;
  };
  struct Owner {  // whose home rows lie in a buffer, and where
    int rank = 0, row = 0;
  };
  struct Buffer {  // a rank's resident buffer, as items see it
    WorkSide side = WorkSide::queries;
    int first_owner = 0, num_owners = 0, first_partner = 0;
  };
  struct Run {  // one owner's rows in a buffer whose items a list holds
    Owner own;
    int partners = 0;  // the buffer they meet
  };
  struct List {
    WorkSide side = WorkSide::queries;
    int rows_of_item = 0, slots_of_run = 0;
    int first_run = 0, num_runs = 0;
    WorkItem *items = nullptr, *item_of_slot = nullptr;
    uint8_t* bucket_of_slot = nullptr;
    int32_t* counts = nullptr;   // [kBuckets] items, then a cursor each
    int32_t* cursors = nullptr;  // [kBuckets]
    int32_t* num_items = nullptr;

    RINGSIDE_HD int num_slots() const { return num_runs * slots_of_run; }
  };

  PartitionRows partition;
  int max_batch = 0, multiple_of = 1;
  Mask mask;
  Side q, k;
  const Owner* owners = nullptr;
  const Buffer* buffers = nullptr;
  const Run* runs = nullptr;
  const List* lists = nullptr;
  int num_buffers = 0, num_lists = 0;
  Segment* partners = nullptr;
  int32_t* status = nullptr;  // 0, or 1 once lengths did not fit

  RINGSIDE_HD const Side& side(WorkSide s) const { return s == WorkSide::queries ? q : k; }
  RINGSIDE_HD int segments_of_rank() const { return partition.parts() * max_batch; }
  RINGSIDE_HD static int slots(int rows, int segments, int rows_of_item) {
    return rows / rows_of_item + segments + 1;
  }

  // --- phase 1 ---

  struct Offsets {  // of a sequence: where its tokens and its rows begin and end
    int32_t begin = 0, end = 0, row_begin = 0, row_end = 0;
  };

  // Whether sequence s fits; all of them do where every one does.
  RINGSIDE_HD bool fits(const Side& x, int s, const Offsets& o) const {
    const int64_t len = int64_t{o.end} - o.begin, rows = int64_t{o.row_end} - o.row_begin;
    const bool starts = s > 0 || (o.begin == 0 && o.row_begin == 0);
    const bool inside = o.begin >= 0 && o.row_begin >= 0 && o.row_end <= x.max_rows;
    return starts & inside & (len >= 0) & (rows >= len) & (rows % multiple_of == 0);
  }

  // The home segments of sequence s, in rows [begin, end), on a rank: rows count from the
  // sequence's first (or, of a stream, from the rank's). Returns how many there are.
  RINGSIDE_HD int home_segments(int rank, int s, int begin, int end, int num_rows,
                                Segment (&part)[2]) const {
    partition.segments(rank, s, begin, end, num_rows, part);
    return part[0].len + part[1].len;
  }
  RINGSIDE_HD void store(const Side& x, int rank, int s, int first_row,
                         const Segment (&part)[2]) const {
    for (int p = 0; p < partition.parts(); ++p) {
      Segment own = part[p];
      if (!partition.of_stream()) own.row += first_row;
      x.segments[int64_t{rank} * segments_of_rank() + partition.index(s, p, max_batch)] = own;
    }
  }

  // --- phase 2 ---

  RINGSIDE_HD int num_partners(const Buffer& b) const {
    return partners_of_sequence(b) * max_batch;
  }
  RINGSIDE_HD void fill_partner(const Buffer& b, int i) const {
    const int of_sequence = partners_of_sequence(b);
    Segment s = home_segment(b, i / of_sequence, i % of_sequence);
    s.row += owners[b.first_owner + i % of_sequence / partition.parts()].row;
    partners[b.first_partner + i] = s;
  }

  // Maps the h-th home row of a rank.
  RINGSIDE_HD void map_row(const Side& x, int rank, int h) const {
    const Segment* home = home_of(x, rank);
    const int j = last_index([&](int i) { return home[i].row <= h; }, {0, segments_of_rank()});
    if (j < 0 || h >= home[j].row_end()) return;
    const int seq = home[j].seq, position = home[j].position(h - home[j].row);
    const int global = x.cu_seqlens_padded[seq] + position, row = x.home_row_of_rank[rank] + h;
    x.global_of_home[row] = position < length(x, seq) ? global : ~global;
    x.home_of_global[global] = row;
  }

  // The item of a slot; false where there is none. Whether it sees something is weight_of's matter.
  RINGSIDE_HD bool item_of(const List& list, int slot, WorkItem& item) const {
    const Run& run = runs[list.first_run + slot / list.slots_of_run];
    const Side& x = side(list.side);
    const Segment* home = home_of(x, run.own.rank);
    const int place = slot % list.slots_of_run, rows = list.rows_of_item;
    // What begins at or before the slot: not more than the segments in front of it, and all but
    // as many as the rows before it make items.
    const int bound = place - x.rank_rows / rows;
    const int j = last_index([&](int i) { return home[i].row / rows + i <= place; },
                             {bound > 0 ? bound : 0, place + 1});
    if (j < 0) return false;
    item.own = home[j];
    item.begin = (place - (home[j].row / rows + j)) * rows;
    const int seq = item.own.seq, valid = item.own.rows_below(length(x, seq));
    if (item.begin >= valid) return false;
    item.end = item.begin + rows < valid ? item.begin + rows : valid;
    item.own.row += run.own.row;
    const Buffer& b = buffers[run.partners];
    item.partner_begin = b.first_partner + seq * partners_of_sequence(b);
    item.partner_end = item.partner_begin + partners_of_sequence(b);
    item.len_q = length(q, seq), item.len_k = length(k, seq);
    return true;
  }

  // Pairs of rows that an item meets, perhaps a few more than it sees; 0: leave it out.
  RINGSIDE_HD int64_t weight_of(const List& list, int slot, const WorkItem& item) const {
    const int seq = item.own.seq;
    const Buffer& b = buffers[runs[list.first_run + slot / list.slots_of_run].partners];
    const SequenceMask m{mask, item.len_q, item.len_k};
    int64_t rows = 0;
    for (int i = 0; i < partners_of_sequence(b); ++i) {
      const Segment partner = home_segment(b, seq, i);
      if (partner.len == 0) continue;
      rows += list.side == WorkSide::queries
                  ? SeenKeys(m, partner, item.own, item.begin, item.end).some.size()
                  : SeeingQueries(m, partner, item.own, item.begin, item.end).some.size();
    }
    return rows * (item.end - item.begin);
  }

  // Four buckets to a factor of two, the heaviest first.
  RINGSIDE_HD static int bucket_of(int64_t weight) {
    if (weight <= 0) return kNoItem;
    int octave = 0;
    for (int step = 32; step > 0; step /= 2)
      if (weight >> (octave + step) > 0) octave += step;
    const int quarter = octave >= 2 ? static_cast<int>(weight >> (octave - 2)) & 3 : 0;
    const int bucket = octave < 8 ? 0 : 4 * (octave - 8) + quarter + 1;
    return kBuckets - 1 - (bucket < kBuckets ? bucket : kBuckets - 1);
  }

 private:
  RINGSIDE_HD static int length(const Side& x, int seq) {
    return x.cu_seqlens[seq + 1] - x.cu_seqlens[seq];
  }
  RINGSIDE_HD Segment* home_of(const Side& x, int rank) const {
    return x.segments + int64_t{rank} * segments_of_rank();
  }
  RINGSIDE_HD int partners_of_sequence(const Buffer& b) const {
    return b.num_owners * partition.parts();
  }
  // The i-th segment of a sequence in a buffer; rows are those of the owner's home.
  RINGSIDE_HD const Segment& home_segment(const Buffer& b, int seq, int i) const {
    const int owner = i / partition.parts(), part = i % partition.parts();
    return home_of(side(b.side),
                   owners[b.first_owner + owner].rank)[partition.index(seq, part, max_batch)];
  }

  // The last of a rank's segments for which a predicate holds that holds for all before it, too;
  // it holds for none behind the range, and for all before it.
  template <typename Predicate>
  RINGSIDE_HD int last_index(Predicate predicate, Interval range) const {
    int lo = range.begin, hi = range.end < segments_of_rank() ? range.end : segments_of_rank();
    while (lo < hi) {
      const int mid = lo + (hi - lo) / 2;
      if (predicate(mid)) {
        lo = mid + 1;
      } else {
        hi = mid;
      }
    }
    return lo - 1;
  }
};

}  // namespace ringside
