// The tables of a program whose lengths only the device knows: who owns which rows, which segments
// lie in which buffer, and the work lists, filled from cu_seqlens by one launch.
//
// Sizes depend on capacities alone, so that a captured graph can be replayed with other lengths.
// Every function here fills one entry, on the host or on the device; length_tables.cu calls them
// from one cooperative kernel with a barrier between phases, length_tables_test.cpp in plain loops:
//
//   1  where each sequence's rows begin in each group: prefix sums over chunks of sequences
//   2  segments of the groups
//   3  partner segments, maps of rows, and the bucket of every slot's item
//   4  items, heaviest bucket first, those of a bucket in the order of their slots' turns; and
//   then,
//      where these are put ahead, those that begin documents
//
// Rows are kept twice: at home, rank by rank, and as they are resident where kernels meet them, in
// groups of ranks (partition_rows.h) whose rows an exchange has put in one buffer, in the order of
// sequences. Rows that stay with their rank, or go round a ring, are those at home.
//
// A slot is a place for one item: block b of the j-th segment of a run has slot row_j / R + j + b,
// R rows an item. Slots of different segments never meet, so nobody has to count blocks first.
#pragma once

#include <cstdint>

#include "optimized/tables/device_layout.h"
#include "optimized/tables/move_tables.h"
#include "optimized/tables/neighbours.h"
#include "optimized/tables/partition_rows.h"
#include "optimized/tables/row_owner.h"
#include "optimized/tables/search.h"
#include "optimized/tables/work_list.h"
#include "reference/rows/seen_rows.h"

namespace ringside {

struct LengthTables {
  static constexpr int kBuckets = 128, kNoItem = 255;
  static constexpr int kChunk = 512;     // sequences
  static constexpr int kMostParts = 64;  // of a list

  struct Groups {
    PartitionRows owned;
    int rows = 0;                      // of the buffer of a group
    int32_t* row_in_chunk = nullptr;   // [groups][max_batch], where sequences begin
    int32_t* rows_of_chunk = nullptr;  // [groups][num_chunks]
    Segment* segments = nullptr;       // [groups][parts * max_batch]
  };
  struct Side {
    int max_rows = 0;                                             // of the global array
    int home_rows = 0;                                            // of all ranks, with gaps
    int32_t *cu_seqlens = nullptr, *cu_seqlens_padded = nullptr;  // [max_batch+1], checked copies
    Groups home, resident;  // of a rank each; and as kernels meet them: perhaps the same
    const int32_t* home_row_of_rank = nullptr;  // [cp_size]
    int32_t *global_of_home = nullptr, *home_of_global = nullptr;
    // Where groups are not ranks: where a row lies in its group's buffer.
    int32_t* resident_of_home = nullptr;  // [home_rows] of all rows of sequences

    RINGSIDE_HD bool is_gathered() const { return resident.owned.ranks > 1; }
  };
  struct ResidentBuffer {       // a rank's resident buffer, as items see it
    Operand side = Operand::q;  // whose rows it holds
    int group = 0, row = 0;     // of which ranks, and where in the matrix
    int first_partner = 0;
  };
  struct Run {  // a buffer whose items a list holds
    int group = 0, row = 0;
    int partners = 0;  // the buffer they meet
  };
  struct List {
    Operand side = Operand::q;  // whose rows an item is a block of
    int rows_of_item = 0, slots_of_run = 0;
    int first_run = 0, num_runs = 0;
    ListOrder order = ListOrder::longest_first;
    WorkItem* items = nullptr;
    int32_t* segment_of_slot = nullptr;
    uint8_t* bucket_of_slot = nullptr;
    int documents_ahead = 0;    // whose first items come so: sums/documents_ahead.h; 0: of none
    int32_t* counts = nullptr;  // [num_parts][2][kBuckets] items, and those that begin segments
    int32_t* num_items = nullptr;
    // Of the documents of such a list, in its order: [max_batch] its first item's slot, and where
    // its items would begin, were none ahead.
    int32_t *first_slots = nullptr, *first_places = nullptr, *num_firsts = nullptr;

    RINGSIDE_HD int num_slots() const { return num_runs * slots_of_run; }
    // In which order slots are asked: of a causal mask the last queries have most to do, and the
    // first keys.
    RINGSIDE_HD int slot_of_turn(int turn) const {
      return side == Operand::q ? num_slots() - 1 - turn : turn;
    }
    // Blocks of threads share a list by parts of its turns.
    RINGSIDE_HD int num_parts() const {
      return (num_slots() + turns_of_part() - 1) / turns_of_part();
    }
    RINGSIDE_HD Interval turns_of(int part) const {
      const int begin = part * turns_of_part(), left = num_slots() - begin;
      return {begin, begin + (left < turns_of_part() ? left : turns_of_part())};
    }

   private:
    RINGSIDE_HD int turns_of_part() const {  // as many as there are threads, some times
      constexpr int kOfAll = kMostParts * kChunk;
      return (num_slots() / kOfAll + 1) * kChunk;
    }
  };

  int max_batch = 0, multiple_of = 1;
  int max_seqlen = INT32_MAX;  // tokens
  Mask mask;
  bool joins_queries = false;  // two segments of a sequence go as one: neighbours.h
  Side q, k;
  const ResidentBuffer* buffers = nullptr;
  const Run* runs = nullptr;
  const List* lists = nullptr;
  int num_buffers = 0, num_lists = 0;
  Segment* partners = nullptr;
  int64_t num_partners = 0, num_slots = 0;  // of all buffers, of all lists
  int32_t* status = nullptr;                // 0, or 1 once lengths did not fit
  int32_t* unfit = nullptr;                 // whether those of this launch do; 0 between launches
  int32_t* longest_keys = nullptr;          // of the sequences of this launch; 0 between launches
  int32_t* most_heads = nullptr;            // heads_of_documents()
  int group_size = 1;                       // as that takes it
  bool in_part = false;                     // likewise
  bool has_firsts_ahead = false;            // some list

  RINGSIDE_HD const Side& side(Operand s) const { return s == Operand::q ? q : k; }
  RINGSIDE_HD int cp_size() const { return q.home.owned.cp_size; }
  RINGSIDE_HD int segments_of(const Groups& g) const { return g.owned.parts() * max_batch; }
  RINGSIDE_HD const Segment* first_segment(const Groups& g, int group) const {
    return g.segments + int64_t{group} * segments_of(g);
  }
  RINGSIDE_HD int num_chunks() const { return (max_batch + kChunk - 1) / kChunk; }
  RINGSIDE_HD static int64_t slots(int rows, int segments, int rows_of_item) {
    return int64_t{rows} / rows_of_item + segments + 1;
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
    const bool is_length = len >= 0 && len <= max_seqlen;
    return starts & inside & is_length & (rows >= len) & (rows % multiple_of == 0);
  }

  // --- phase 2 ---

  // The i-th segment of a group.
  RINGSIDE_HD Segment segment(const Side& x, const Groups& g, int group, int i) const {
    const bool of_stream = g.owned.of_stream();
    const int seq = of_stream ? i % max_batch : i / g.owned.parts();
    const int part = of_stream ? i / max_batch : i % g.owned.parts();
    Segment own = g.owned.segment(group, part, seq, x.cu_seqlens_padded[seq],
                                  x.cu_seqlens_padded[seq + 1], x.cu_seqlens_padded[max_batch]);
    if (of_stream) return own;  // counts from the group's first row
    own.row += g.row_in_chunk[int64_t{group} * max_batch + seq];
    for (int chunk = 0; chunk < seq / kChunk; ++chunk)
      own.row += g.rows_of_chunk[int64_t{group} * num_chunks() + chunk];
    return own;
  }

  // --- phase 3 ---

  RINGSIDE_HD int num_partners_of(const ResidentBuffer& b) const {
    return segments_of(side(b.side).resident);
  }
  RINGSIDE_HD Segment partner(const ResidentBuffer& b, int i) const {
    const Groups& g = side(b.side).resident;
    const int seq = i / g.owned.parts(), part = i % g.owned.parts();
    Segment s = segment_in(g, b.group, seq, part);
    if (may_join(b.side)) {
      const Segment first = segment_in(g, b.group, seq, 0), second = segment_in(g, b.group, seq, 1);
      if (can_join(first, second)) s = part == 0 ? joined(first, second) : Segment{seq};
    }
    s.row += b.row;
    return s;
  }

  // Maps N home rows of a rank: h, h + stride, ... Their searches take their steps together.
  template <int N>
  RINGSIDE_HD void map_rows(const Side& x, int rank, int h, int stride) const {
    const Segment* home = first_segment(x.home, rank);
    const int segments = segments_of(x.home);
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

  // The segment that a slot's item would be a block of, in its group's table; -1: there is none.
  RINGSIDE_HD int segment_of(const List& list, int slot) const {
    const Groups& g = side(list.side).resident;
    const Segment* own = first_segment(g, runs[list.first_run + slot / list.slots_of_run].group);
    const int place = slot % list.slots_of_run, rows = list.rows_of_item;
    // What begins at or before the slot: not more than the segments in front of it, and all but
    // as many as the rows before it make items.
    const int bound = place - g.rows / rows, most = segments_of(g);
    return first_where(bound > 0 ? bound : 0, place < most ? place + 1 : most,
                       [&](int i) { return own[i].row / rows + i > place; }) -
           1;
  }

  // The item of a slot, a block of segment_of's j-th; false where there is none. Whether it sees
  // something is weight_of's matter.
  RINGSIDE_HD_INLINE bool item_of(const List& list, int slot, int j, WorkItem& item) const {
    if (j < 0) return false;
    const Run& run = runs[list.first_run + slot / list.slots_of_run];
    const int place = slot % list.slots_of_run, rows = list.rows_of_item;
    item.own = first_segment(side(list.side).resident, run.group)[j];
    const int seq = item.own.seq, len = length(side(list.side), seq);
    item.len_q = length(q, seq), item.len_k = length(k, seq);
    int block = place - (item.own.row / rows + j);
    if (block * rows >= item.own.len) return false;
    if (may_join(list.side)) join_own(list, run, j, item, block);
    const int valid = item.own.rows_below(len);
    item.begin = block * rows, item.end = item.begin + rows < valid ? item.begin + rows : valid;
    if (item.begin >= valid) return false;
    item.own.row += run.row;
    const ResidentBuffer& b = buffers[run.partners];
    const int parts = side(b.side).resident.owned.parts();
    item.partner_begin = b.first_partner + seq * parts;
    item.partner_end = item.partner_begin + parts;
    return true;
  }

  // Pairs of rows that an item meets, perhaps a few more than it sees; 0: leave it out.
  RINGSIDE_HD_INLINE int64_t weight_of(const List& list, int slot, const WorkItem& item) const {
    const int seq = item.own.seq;
    const ResidentBuffer& b = buffers[runs[list.first_run + slot / list.slots_of_run].partners];
    const Groups& g = side(b.side).resident;
    const SequenceMask m{mask, item.len_q, item.len_k};
    int64_t rows = 0;
    for (int part = 0; part < g.owned.parts(); ++part) {
      const Segment partner = segment_in(g, b.group, seq, part);
      rows += list.side == Operand::q
                  ? SeenKeys(m, partner, item.own, item.begin, item.end).some.size()
                  : SeeingQueries(m, partner, item.own, item.begin, item.end).some.size();
    }
    return rows * (item.end - item.begin);
  }

  // The bucket of a slot whose item this is.
  RINGSIDE_HD int bucket_of_item(const List& list, int slot, const WorkItem& item) const {
    const int64_t weight = weight_of(list, slot, item);
    if (weight <= 0 || list.order == ListOrder::longest_first) return bucket_of(weight);
    WorkItem all = item;  // of its segment's, as if they were one
    all.end = item.own.rows_below(list.side == Operand::q ? item.len_q : item.len_k);
    // What is left of the segment becomes less from item to item.
    if (list.order == ListOrder::in_turn) return bucket_of(int64_t{all.end} - all.begin);
    all.begin = 0;
    return bucket_of(weight_of(list, slot, all));
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

  // Segments of queries that a group has two of for each sequence.
  RINGSIDE_HD bool may_join(Operand operand) const {
    return joins_queries && operand == Operand::q && q.resident.owned.parts() == 2;
  }
  // Makes the item's segment, the j-th of its group, one with the sequence's other where that
  // spares blocks and both meet the same segments of keys; its blocks have the slots of both.
  RINGSIDE_HD_INLINE void join_own(const List& list, const Run& run, int j, WorkItem& item,
                                   int& block) const {
    const int seq = item.own.seq, group = buffers[run.partners].group;
    const Segment first = segment_in(q.resident, run.group, seq, 0);
    const Segment second = segment_in(q.resident, run.group, seq, 1);
    const auto keys = [&](int part) { return segment_in(k.resident, group, seq, part); };
    if (!can_join(first, second) || !spares_blocks(first, second, item.len_q, list.rows_of_item) ||
        !meet_the_same({mask, item.len_q, item.len_k}, first, second, k.resident.owned.parts(),
                       keys))
      return;
    if (j != q.resident.owned.index(seq, 0, max_batch))
      block += blocks_of(first.len, list.rows_of_item);
    item.own = joined(first, second);
  }
  RINGSIDE_HD const Segment& segment_in(const Groups& g, int group, int seq, int part) const {
    return first_segment(g, group)[g.owned.index(seq, part, max_batch)];
  }
  RINGSIDE_HD void map_row(const Side& x, int rank, int h, const Segment& home) const {
    if (h >= home.row_end()) return;
    const int position = home.position(h - home.row), row = x.home_row_of_rank[rank] + h;
    const int global = x.cu_seqlens_padded[home.seq] + position;
    const bool is_valid = position < length(x, home.seq);
    x.global_of_home[row] = is_valid ? global : padding_row(global);
    x.home_of_global[global] = row;
    if (!x.is_gathered()) return;
    const Groups& g = x.resident;
    x.resident_of_home[row] = resident_row(g, rank / g.owned.ranks, home.seq, position);
  }
  // In the buffer of a group that owns the position: in the one segment that holds it.
  RINGSIDE_HD int resident_row(const Groups& g, int group, int seq, int position) const {
    int row = kNobody;
    for (int part = 0; part < g.owned.parts(); ++part) {
      const Segment& s = segment_in(g, group, seq, part);
      if (s.rows_within({position, position + 1}).size() > 0) row = s.row + s.rows_below(position);
    }
    return row;
  }
};

}  // namespace ringside
