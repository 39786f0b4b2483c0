// The producer group of the backward kernel, a warp for each task: one takes items off the queue
// and leaves a note of each of their query blocks; one loads what the softmax left of the blocks'
// rows; one has the copy engine bring tiles; one sends results off (backward_send.cuh). Notes are
// some blocks ahead: nobody waits while the queue is asked and an item looked at.
#pragma once

#include "optimized/attention/hopper/backward/item_keys.cuh"
#include "optimized/attention/hopper/backward/query_walk.cuh"
#include "optimized/attention/hopper/seen_line.h"
#include "optimized/tables/item_turns.h"

namespace ringside::hopper::backward_detail {

// The queue; the number of the next item is asked for ahead. By all lanes of a warp. kInTurn: items
// begin in the order of their numbers, or nearly, since others wait for them: no number is asked
// for before its item is next, nor belongs to a block of threads that may not have begun.
template <bool kInTurn>
class Queue {
 public:
  __device__ explicit Queue(const Parameters& parameters)
      : p_(parameters), items_(min(*p_.work.num_items, p_.work.max_items)), index_(blockIdx.x) {
    if (in_turn())
      advance();
    else
      ask();
  }
  __device__ bool in_turn() const { return kInTurn && p_.turns != nullptr; }
  __device__ bool valid() const { return index_ < p_.order.size(max(items_, 0)); }
  __device__ QueueEntry entry() const { return p_.order.in_sections(index_, items_); }
  __device__ void advance() {
    if (in_turn()) next_ = threadIdx.x % 32 == 0 ? atomicAdd(p_.taken, 1u) : 0;
    index_ = __shfl_sync(kEveryLane, next_, 0);
    if (!in_turn()) ask();
  }

 private:
  __device__ void ask() {
    if (valid() && threadIdx.x % 32 == 0) next_ = atomicAdd(p_.taken, 1u) + gridDim.x;
  }

  const Parameters& p_;
  int items_;
  unsigned index_, next_ = 0;  // next_: the first lane's
};

// A note's place, once nobody reads what is there; by the first lane it is written, and then shown.
template <typename Shape>
__device__ inline BlockNote& begin_note(PlainShared<Shape>& shared, uint32_t block) {
  wait(shared.barriers.note_empty[block % kNotesAhead], block / kNotesAhead % 2 ^ 1);
  return shared.notes[block % kNotes];
}
template <typename Shape>
__device__ inline void publish(PlainShared<Shape>& shared, uint32_t block, int flags) {
  if (threadIdx.x % 32 != 0) return;
  shared.notes[block % kNotes].flags = flags;
  arrive(shared.barriers.note_full[block % kNotes]);
}
template <typename Shape>
__device__ inline const BlockNote& wait_for_note(PlainShared<Shape>& shared, uint32_t block) {
  wait(shared.barriers.note_full[block % kNotes], block / kNotes % 2);
  return shared.notes[block % kNotes];
}

// The query heads of an entry of the queue: all that share a key head, or a part of them.
__device__ inline Interval query_heads_of(const Parameters& p, const QueueEntry& entry) {
  const int kv_head = entry.head / p.head_parts, part = entry.head - kv_head * p.head_parts;
  const Interval all = ringside::query_heads_of(p.shape, kv_head);
  return {all.begin + all.size() * part / p.head_parts,
          all.begin + all.size() * (part + 1) / p.head_parts};
}

// Of one block of an item's keys, behind so many blocks of others. Returns how many there are now.
// flags_of(row): what else there is to say of the block that begins at this row of its partner.
template <typename Shape, typename FlagsOf>
__device__ inline uint32_t note_keys(const Parameters& p, PlainShared<Shape>& shared,
                                     const WorkItem& item, Interval keys, const QueueEntry& entry,
                                     Blocks blocks, uint32_t block, FlagsOf flags_of) {
  QueryWalk<Shape::kKeys> at(p.work, item, keys, query_heads_of(p, entry), blocks);
  const int kv_head = entry.head / p.head_parts;
  const int of_item = p.flags | (leaves_final(item, p.has_final) ? kFinal : 0);
  int sees = at.flags();
  for (int first = kFirst; at.valid(); first = 0, ++block) {
    BlockNote& note = begin_note(shared, block);
    if (threadIdx.x % 32 == 0) {
      note.row = at.row(), note.rows = at.rows(), note.head = at.head();
      note.key_row = item.own.row + keys.begin, note.keys = keys.size();
      note.kv_head = kv_head, note.item = entry.item;
      note.partner = at.partner(), note.begin = at.begin();
      if (blocks == Blocks::in_turn)
        note.turn = turn_of_item(sequence_mask(p.work, item), item.own, item.begin, Shape::kKeys,
                                 p.work.partners[at.partner()], at.begin());
    }
    int flags = first | of_item | flags_of(at.begin()) | sees;
    if (keys.size() < Shape::kKeys) flags &= ~kClear;
    at.advance();
    sees = at.flags();
    publish(shared, block, flags | (sees & kLast) | sees / kUnseen * kNextUnseen);
  }
  return block;
}

// The blocks of queries, of an item's only partner, that see some of the keys a lane asks for.
class BlocksSeeing {
 public:
  __device__ BlocksSeeing(const Parameters& p, const WorkItem& item, Interval keys) {
    if (keys.size() <= 0) return;
    const Interval seeing =
        SeeingQueries(sequence_mask(p.work, item), p.work.partners[item.partner_begin], item.own,
                      keys.begin, keys.end)
            .some;
    first_ = seeing.begin / kQueries;
    if (seeing.size() > 0) number_ = (seeing.end + kQueries - 1) / kQueries - first_;
  }
  // Bits of the lanes whose keys the block that begins at this row sees.
  __device__ unsigned lanes_of(int row) const {
    return __ballot_sync(kEveryLane, row / kQueries - first_ < number_);
  }

 private:
  unsigned first_ = 0, number_ = 0;
};

// Of an item that adds to dq in turn: whether others do before it, and behind it.
template <typename Shape, Dq kDq>
__device__ inline uint32_t note_item_in_turn(const Parameters& p, PlainShared<Shape>& shared,
                                             const WorkItem& item, const QueueEntry& entry,
                                             uint32_t block) {
  const int lane = threadIdx.x % 32, last = item.own.rows_below(item.len_k);
  const Interval before = {item.begin - Shape::kKeys, item.begin};
  const Interval behind = {item.end, min(item.end + Shape::kKeys, last)};
  const BlocksSeeing seeing(p, item,
                            lane == 0 && before.begin >= 0 ? before
                            : lane == 1                    ? behind
                                                           : Interval{});
  const auto flags_of = [&](int row) {
    const unsigned others = seeing.lanes_of(row);
    return others >> 1 ? kCarriedOn : others ? kCarried : 0;
  };
  return note_keys<Shape>(p, shared, item, {item.begin, item.end}, entry, Blocks::in_turn, block,
                          flags_of);
}

// Of an item of one block of keys, or of several and one segment of queries, from the last to the
// first. Each lane knows which queries see one of them.
template <typename Shape>
__device__ inline uint32_t note_whole_item(const Parameters& p, PlainShared<Shape>& shared,
                                           const WorkItem& item, const QueueEntry& entry,
                                           uint32_t block) {
  const auto keys_of = [&](int part) -> Interval {
    const int begin = item.begin + part * Shape::kKeys;
    return {begin, min(begin + Shape::kKeys, item.end)};
  };
  const int parts = (item.end - item.begin + Shape::kKeys - 1) / Shape::kKeys;
  const int lane = threadIdx.x % 32;
  const BlocksSeeing seeing(p, item, lane < parts ? keys_of(lane) : Interval{});
  for (int part = parts - 1; part >= 0; --part) {
    const auto flags_of = [&](int row) {
      const unsigned parts_met = seeing.lanes_of(row);
      return (parts_met >> part > 1 ? kCarried : 0) |
             ((parts_met & ((1u << part) - 1)) != 0 ? kCarriedOn : 0);
    };
    block = note_keys<Shape>(p, shared, item, keys_of(part), entry, Blocks::of_segment, block,
                             flags_of);
  }
  return block;
}

template <typename Shape, Dq kDq>
__device__ inline uint32_t note_item(const Parameters& p, PlainShared<Shape>& shared,
                                     const QueueEntry& entry, uint32_t block) {
  const WorkItem& item = p.work.items[entry.item];
  if (item.begin >= item.end) return block;
  if constexpr (kMayCarry<Shape, kDq>) {
    if (p.turns != nullptr) return note_item_in_turn<Shape, kDq>(p, shared, item, entry, block);
    return note_whole_item(p, shared, item, entry, block);
  }
  const Blocks blocks =
      kTakesTurns<Shape, kDq> && p.turns != nullptr ? Blocks::in_turn : Blocks::of_item;
  return note_keys<Shape>(p, shared, item, {item.begin, item.end}, entry, blocks, block,
                          [](int) { return 0; });
}

// By all lanes of a warp.
template <typename Shape, Dq kDq>
__device__ inline void write_notes(const Parameters& parameters, PlainShared<Shape>& shared) {
  uint32_t block = 0;
  for (Queue<kTakesTurns<Shape, kDq>> queue(parameters); queue.valid(); queue.advance())
    block = note_item<Shape, kDq>(parameters, shared, queue.entry(), block);
  begin_note(shared, block);
  publish(shared, block, kStop);
}

// So many panels of a block's rows of Q or dO.
template <int kPanels>
__device__ inline void load_queries(const CUtensorMap& map, uint8_t* tile, Barrier& full,
                                    const BlockNote& note) {
  arrive_and_expect(full, kPanels * kQueryPanel);
  const uint32_t to = shared_address(tile);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    load_box(to + panel * kQueryPanel, map,
             ragged_box(panel * kPanelColumns, note.head, note.row, note.rows), full);
}

// The tiles of block after block; by one thread.
template <typename Shape>
__device__ inline void load_tiles(const Parameters& p, PlainShared<Shape>& shared) {
  constexpr int kStages = Shape::kStages, kKeyStages = Shape::kKeyStages;
  Barriers<Shape>& barriers = shared.barriers;
  uint32_t item = 0;  // how many were loaded
  for (uint32_t block = 0;; ++block) {
    const BlockNote note = wait_for_note(shared, block);
    const uint32_t stage = block % kStages, key_stage = item % kKeyStages;
    const auto load_k = [&] {
      wait(barriers.k_empty[key_stage], item / kKeyStages % 2 ^ 1);
      load_keys<Shape, Shape::kQkPanels>(p.maps.k, shared.k[key_stage], barriers.k_full[key_stage],
                                         note);
    };
    if (kKeyStages > 1 && (note.flags & kFirst)) load_k();
    wait(barriers.empty[stage], block / kStages % 2 ^ 1);
    // Of the block before the one that was here all is done, the sending of dq included, and of the
    // note before that nobody asks any more: others, kNotesAhead further on, may be written.
    arrive(barriers.note_empty[block % kNotesAhead]);
    if (note.flags & kStop) return arrive(barriers.q_full[stage]);
    load_queries<Shape::kQkPanels>(p.maps.q, shared.q[stage], barriers.q_full[stage], note);
    load_queries<Shape::kVPanels>(p.maps.dout, shared.dout[stage], barriers.dout_full[stage], note);
    if (note.flags & kFirst) {
      if (kKeyStages == 1) load_k();  // whose place becomes free last
      wait(barriers.v_empty, item % 2 ^ 1);
      load_keys<Shape, Shape::kVPanels>(p.maps.v, shared.v, barriers.v_full, note);
      ++item;
    }
  }
}

__device__ inline uchar2 packed(Interval seen) {
  return {static_cast<uint8_t>(seen.begin), static_cast<uint8_t>(seen.size())};
}

// The block's first key, counted from that of the item's segment.
__device__ inline int first_key_of(const BlockNote& note, const WorkItem& item) {
  return note.key_row - item.own.row;
}

// Which of the item's keys a row of a block sees, where it must be asked.
__device__ inline uchar2 keys_of_row(const Parameters& parameters, const BlockNote& note, int i) {
  if (i >= note.rows) return {0, 0};
  const WorkItem& item = parameters.work.items[note.item];
  const int query = parameters.work.partners[note.partner].position(note.begin + i);
  const Interval seen = sequence_mask(parameters.work, item).visible_rows(item.own, query);
  const int first_key = first_key_of(note, item);
  const int first = max(seen.begin - first_key, 0), last = min(seen.end - first_key, note.keys);
  if (first >= last) return {0, 0};
  return packed({first, last});
}

// Bits of the groups whose keys a row sees all of. A row that is not there sees none: its zeros
// times a key that is infinite are no weight.
template <int kKeyGroups>
__device__ inline int groups_seen(uchar2 seen) {
  int groups = 0;
#pragma unroll
  for (int group = 0; group < kKeyGroups; ++group) {
    const int begin = group * kGroupKeys, end = begin + kGroupKeys;
    if (seen.x <= begin && seen.x + seen.y >= end) groups |= 1 << group;
  }
  return groups;
}

// A number that is asked for here, not where it is used.
__device__ inline float load_ahead(const float* from) {
  float x;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(from));
  return x;
}

// What the softmax left of a lane's rows of a block.
struct LaneRows {
  static constexpr int kRows = kQueries / 32;
  float lse[kRows], delta[kRows];

  // Rows that are not get the last one's.
  __device__ LaneRows(const Parameters& parameters, const BlockNote& note) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = note.row + min(row_of_lane(i), note.rows - 1);
      const int64_t at = int64_t{row} * parameters.shape.num_heads + note.head;
      lse[i] = load_ahead(parameters.lse + at), delta[i] = load_ahead(parameters.delta + at);
    }
  }
  __device__ static int row_of_lane(int i) { return static_cast<int>(threadIdx.x) % 32 + 32 * i; }

  // Rows that are not there weigh nothing.
  __device__ void write(QueryRows& to, int rows) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = row_of_lane(i);
      const bool is_row = row < rows;
      // Of scores of -inf, which have that lse, no -inf - -inf; NaN stays.
      const float shift = lse[i] == -INFINITY ? -1e30f : lse[i] * kLog2E;
      to.shift[row] = is_row ? shift : INFINITY, to.minus_delta[row] = is_row ? -delta[i] : 0;
    }
  }
};

// What a block's rows see of the item's keys, where not all see all.
template <int kKeyGroups>
__device__ inline void write_seen(const Parameters& parameters, const BlockNote& note,
                                  SeenKeysOfRows& to) {
  int clear = (1 << kKeyGroups) - 1;
  const auto write = [&](auto seen_of) {
#pragma unroll 1
    for (int row = threadIdx.x % 32; row < kQueries; row += 32) {
      const uchar2 seen = seen_of(row);
      to.of[row] = seen;
      clear &= groups_seen<kKeyGroups>(seen);
    }
    clear = __reduce_and_sync(kEveryLane, clear);
  };
  if ((note.flags & kClear) == 0) {
    const WorkItem& item = parameters.work.items[note.item];
    const SequenceMask mask = sequence_mask(parameters.work, item);
    const Segment q = parameters.work.partners[note.partner];
    SeenLine line(mask, item.own, q, note.begin, first_key_of(note, item));
    if (line.holds) {
      line.keys = note.keys;
      write([&](int row) { return row < note.rows ? packed(line.seen_by(row)) : uchar2{0, 0}; });
    } else {
      write([&](int row) { return keys_of_row(parameters, note, row); });
    }
  }
  if (threadIdx.x % 32 == 0) to.clear = clear;
}

__device__ inline ScorePlace place_of(const Parameters& parameters, const ScoreNumbers& scores,
                                      const BlockNote& note) {
  const WorkItem& item = parameters.work.items[note.item];
  return {scores,
          sequence_mask(parameters.work, item),
          parameters.work.partners[note.partner],
          note.begin,
          item.own,
          first_key_of(note, item)};
}

// All that is known of the rows of block after block. By all lanes of a warp, of two rows each;
// what memory has of them comes while the mask is asked and their place becomes free.
template <typename Shape, bool kOptions>
__device__ void load_rows(const ParametersOf<kOptions>& parameters,
                          SharedOf<Shape, kOptions>& shared) {
  constexpr int kStages = Shape::kStages, kSeenStages = Shape::kSeenStages;
  for (uint32_t block = 0;; ++block) {
    const BlockNote& note = wait_for_note(shared, block);
    if (note.flags & kStop) return;
    const LaneRows rows(parameters, note);
    write_seen<Shape::kKeyGroups>(parameters, note, shared.seen[block % kSeenStages]);
    if constexpr (kOptions)
      if (threadIdx.x % 32 == 0)
        shared.places[block % kSeenStages] = place_of(parameters, parameters.scores, note);
    const uint32_t stage = block % kStages;
    wait(shared.barriers.empty[stage], block / kStages % 2 ^ 1);
    rows.write(shared.rows[stage], note.rows);
    if constexpr (Shape::kSplit)
      arrive_as_warp(shared.barriers.rows_full[stage]);
    else
      arrive_as_warp(shared.barriers.dout_full[stage]);
  }
}

}  // namespace ringside::hopper::backward_detail
