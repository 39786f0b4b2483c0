// The tables of a program whose lengths only the device knows: who owns which rows, which segments
// lie in which buffer, and the work lists, filled from cu_seqlens by one launch.
//
// Sizes depend on capacities alone, so that a captured graph can be replayed with other lengths.
// Every function here fills one entry, on the host or on the device; length_tables.cu calls them
// from one cooperative kernel with a barrier between phases, length_tables_test.cpp in plain loops:
//
//   1  where each sequence's rows begin on each rank: prefix sums over chunks of sequences
//   2  home segments
//   3  partner segments, maps of rows, and the bucket of every slot's item
//   4  items, heaviest bucket first
//
// A slot is a place for one item: block b of the j-th segment of a run has slot row_j / R + j + b,
// R rows an item. Slots of different segments never meet, so nobody has to count blocks first.
#pragma once

#include <cstdint>

#include "optimized/tables/device_layout.h"
#include "optimized/tables/move_tables.h"
#include "optimized/tables/partition_rows.h"
#include "optimized/tables/row_owner.h"
#include "optimized/tables/search.h"
#include "optimized/tables/work_list.h"
#include "reference/rows/seen_rows.h"

namespace ringside {

struct LengthTables {
  static constexpr int kBuckets = 128, kNoItem = 255;
  static constexpr int kChunk = 512;  // sequences

  struct Side {
    int max_rows = 0;                                             // of the global array
    int rank_rows = 0;                                            // of a rank's home buffer
    int home_rows = 0;                                            // of all, with gaps
    int32_t *cu_seqlens = nullptr, *cu_seqlens_padded = nullptr;  // [max_batch+1], checked copies
    int32_t* row_in_chunk = nullptr;            // [cp_size][max_batch], where sequences begin
    int32_t* rows_of_chunk = nullptr;           // [cp_size][num_chunks]
    Segment* segments = nullptr;                // [cp_size][parts * max_batch] home segments
    const int32_t* home_row_of_rank = nullptr;  // [cp_size]
    int32_t *global_of_home = nullptr, *home_of_global = nullptr;
  };
  struct Owner {  // whose home rows lie in a buffer, and where
    int rank = 0, row = 0;
  };
  struct ResidentBuffer {       // a rank's resident buffer, as items see it
    Operand side = Operand::q;  // whose rows it holds
    int first_owner = 0, num_owners = 0, first_partner = 0;
  };
  struct OwnerRun {  // one owner's rows in a buffer whose items a list holds
    Owner own;
    int partners = 0;  // the buffer they meet
  };
  struct List {
    Operand side = Operand::q;  // whose rows an item is a block of
    int rows_of_item = 0, slots_of_run = 0;
    int first_run = 0, num_runs = 0;
    WorkItem* items = nullptr;
    int32_t* segment_of_slot = nullptr;
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
  const ResidentBuffer* buffers = nullptr;
  const OwnerRun* runs = nullptr;
  const List* lists = nullptr;
  int num_buffers = 0, num_lists = 0;
  Segment* partners = nullptr;
  int64_t num_partners = 0, num_slots = 0;  // of all buffers, of all lists
  int32_t* status = nullptr;                // 0, or 1 once lengths did not fit
  int32_t* unfit = nullptr;                 // whether those of this launch do; 0 between launches

  RINGSIDE_HD const Side& side(Operand s) const { return s == Operand::q ? q : k; }
  RINGSIDE_HD int segments_of_rank() const { return partition.parts() * max_batch; }
  RINGSIDE_HD int num_chunks() const { return (max_batch + kChunk - 1) / kChunk; }
  RINGSIDE_HD static int slots(int rows, int segments, int rows_of_item) {
    return rows / rows_of_item + segments + 1;
  }

  // --- phase 1 ---

  struct Bounds {  // of a sequence: where its tokens and its rows begin and end
    int32_t begin = 0, end = 0, row_begin = 0, row_end = 0;
  };

  // As the caller gives them; sequences behind the last are empty ones at its end.
  RINGSIDE_HD static Bounds bounds(const DeviceLayout& given, int s) {
    return {given.valid.going_on(s), given.valid.going_on(s + 1), given.padded.going_on(s),
            given.padded.going_on(s + 1)};
  }

  // Whether sequence s fits; all of them do where every one does.
  RINGSIDE_HD bool fits(const Side& x, int s, const Bounds& o) const {
    const int64_t len = int64_t{o.end} - o.begin, rows = int64_t{o.row_end} - o.row_begin;
    const bool starts = s > 0 || (o.begin == 0 && o.row_begin == 0);
    const bool inside = o.begin >= 0 && o.row_begin >= 0 && o.row_end <= x.max_rows;
    return starts & inside & (len >= 0) & (rows >= len) & (rows % multiple_of == 0);
  }

  // How many rows of sequence s, in rows [begin, end) of num_rows, a rank owns.
  RINGSIDE_HD int rows_of_sequence(int rank, int s, int begin, int end, int num_rows) const {
    Segment part[2];
    partition.segments(rank, s, begin, end, num_rows, part);
    return part[0].len + part[1].len;
  }

  // --- phase 2 ---

  // The i-th home segment of a rank.
  RINGSIDE_HD Segment home_segment(const Side& x, int rank, int i) const {
    const int seq = partition.of_stream() ? i % max_batch : i / partition.parts();
    const int p = partition.of_stream() ? i / max_batch : i % partition.parts();
    Segment part[2];
    partition.segments(rank, seq, x.cu_seqlens_padded[seq], x.cu_seqlens_padded[seq + 1],
                       x.cu_seqlens_padded[max_batch], part);
    Segment own = p == 0 ? part[0] : part[1];
    if (partition.of_stream()) return own;  // counts from the rank's first row
    own.row += x.row_in_chunk[int64_t{rank} * max_batch + seq];
    for (int chunk = 0; chunk < seq / kChunk; ++chunk)
      own.row += x.rows_of_chunk[int64_t{rank} * num_chunks() + chunk];
    return own;
  }

  // --- phase 3 ---

  RINGSIDE_HD int num_partners_of(const ResidentBuffer& b) const {
    return partners_of_sequence(b) * max_batch;
  }
  RINGSIDE_HD Segment partner(const ResidentBuffer& b, int i) const {
    const int of_sequence = partners_of_sequence(b);
    Segment s = home_segment_in(b, i / of_sequence, i % of_sequence);
    s.row += owners[b.first_owner + i % of_sequence / partition.parts()].row;
    return s;
  }

  // Maps N home rows of a rank: h, h + stride, ... Their searches take their steps together.
  template <int N>
  RINGSIDE_HD void map_rows(const Side& x, int rank, int h, int stride) const {
    const Segment* home = home_of(x, rank);
    const int segments = segments_of_rank();
    int last[N], step = 1;  // segments that begin at or before the rows
    for (int& j : last) j = -1;
    while (step <= segments / 2) step *= 2;
    for (; step > 0; step /= 2)
      for (int i = 0; i < N; ++i)
        if (last[i] + step < segments && home[last[i] + step].row <= h + i * stride)
          last[i] += step;
    for (int i = 0; i < N; ++i)
      if (last[i] >= 0) map_row(x, rank, h + i * stride, home[last[i]]);
  }

  // The segment that a slot's item would be a block of, in its rank's table; -1: there is none.
  RINGSIDE_HD int segment_of(const List& list, int slot) const {
    const Side& x = side(list.side);
    const Segment* home = home_of(x, runs[list.first_run + slot / list.slots_of_run].own.rank);
    const int place = slot % list.slots_of_run, rows = list.rows_of_item;
    // What begins at or before the slot: not more than the segments in front of it, and all but
    // as many as the rows before it make items.
    const int bound = place - x.rank_rows / rows, most = segments_of_rank();
    return first_where(bound > 0 ? bound : 0, place < most ? place + 1 : most,
                       [&](int i) { return home[i].row / rows + i > place; }) -
           1;
  }

  // The item of a slot, a block of segment_of's j-th; false where there is none. Whether it sees
  // something is weight_of's matter.
  RINGSIDE_HD bool item_of(const List& list, int slot, int j, WorkItem& item) const {
    if (j < 0) return false;
    const OwnerRun& run = runs[list.first_run + slot / list.slots_of_run];
    const int place = slot % list.slots_of_run, rows = list.rows_of_item;
    item.own = home_of(side(list.side), run.own.rank)[j];
    item.begin = (place - (item.own.row / rows + j)) * rows;
    const int seq = item.own.seq, valid = item.own.rows_below(length(side(list.side), seq));
    if (item.begin >= valid) return false;
    item.end = item.begin + rows < valid ? item.begin + rows : valid;
    item.own.row += run.own.row;
    const ResidentBuffer& b = buffers[run.partners];
    item.partner_begin = b.first_partner + seq * partners_of_sequence(b);
    item.partner_end = item.partner_begin + partners_of_sequence(b);
    item.len_q = length(q, seq), item.len_k = length(k, seq);
    return true;
  }

  // Pairs of rows that an item meets, perhaps a few more than it sees; 0: leave it out.
  RINGSIDE_HD int64_t weight_of(const List& list, int slot, const WorkItem& item) const {
    const int seq = item.own.seq;
    const ResidentBuffer& b = buffers[runs[list.first_run + slot / list.slots_of_run].partners];
    const SequenceMask m{mask, item.len_q, item.len_k};
    int64_t rows = 0;
    for (int i = 0; i < partners_of_sequence(b); ++i) {
      const Segment partner = home_segment_in(b, seq, i);
      if (partner.len == 0) continue;
      rows += list.side == Operand::q
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
  RINGSIDE_HD void map_row(const Side& x, int rank, int h, const Segment& home) const {
    if (h >= home.row_end()) return;
    const int position = home.position(h - home.row), row = x.home_row_of_rank[rank] + h;
    const int global = x.cu_seqlens_padded[home.seq] + position;
    x.global_of_home[row] = position < length(x, home.seq) ? global : padding_row(global);
    x.home_of_global[global] = row;
  }
  RINGSIDE_HD int partners_of_sequence(const ResidentBuffer& b) const {
    return b.num_owners * partition.parts();
  }
  // The i-th segment of a sequence in a buffer; rows are those of the owner's home.
  RINGSIDE_HD const Segment& home_segment_in(const ResidentBuffer& b, int seq, int i) const {
    const int owner = i / partition.parts(), part = i % partition.parts();
    return home_of(side(b.side),
                   owners[b.first_owner + owner].rank)[partition.index(seq, part, max_batch)];
  }
};

}  // namespace ringside
