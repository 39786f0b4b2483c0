// The producer group of the backward kernel, a warp for each task: one takes items off the queue
// and leaves a note of each of their query blocks, here; one loads what the softmax left of the
// blocks' rows (rows.cuh); one has the copy engine bring tiles, and takes final dv from where they
// come to (tiles.cuh); one sends other results off (send/results.cuh). Notes are some blocks ahead:
// nobody waits while the queue is asked and an item looked at.
#pragma once

#include "optimized/attention/hopper/backward/produce/query_walk.cuh"
#include "optimized/attention/hopper/backward/shared/notes.cuh"
#include "optimized/tables/sums/item_turns.h"

namespace ringside::hopper::backward_detail {

// The queue; the number of the next item is asked for ahead. By all lanes of a warp. Where items
// wait for others no number belongs to a block of threads that may not have begun; and kInTurn,
// where they begin in the order of their numbers, or nearly, none is asked for before its item is
// next.
template <bool kInTurn>
class Queue {
 public:
  __device__ explicit Queue(const Parameters& parameters)
      : p_(parameters), items_(min(*p_.work.num_items, p_.work.max_items)), index_(blockIdx.x) {
    if (in_turn()) {
      advance();
    } else {
      if (first_store()) index_ = __shfl_sync(kEveryLane, taken(), 0);
      ask();
    }
  }
  __device__ bool in_turn() const { return kInTurn && p_.turns != nullptr; }
  __device__ bool valid() const { return index_ < p_.order.size(max(items_, 0)); }
  __device__ QueueEntry entry() const {
    QueueOrder order = p_.order;
    // Asked for anew, as there is no register to keep it: notes are written ahead of need.
    if (p_.most_heads != nullptr)
      order.heads_of_section = min(*p_.most_heads, order.heads_of_section);
    return order.in_sections(index_, items_);
  }
  __device__ void advance() {
    if (in_turn()) next_ = taken();
    index_ = __shfl_sync(kEveryLane, next_, 0);
    if (!in_turn()) ask();
  }

 private:
  __device__ bool first_store() const { return p_.first_stored != nullptr; }
  __device__ unsigned taken() { return threadIdx.x % 32 == 0 ? atomicAdd(p_.taken, 1u) : 0; }
  __device__ void ask() {
    if (valid()) next_ = taken() + (first_store() ? 0 : gridDim.x);
  }

  const Parameters& p_;
  int items_;
  unsigned index_, next_ = 0;  // next_: the first lane's
};

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
  const int of_item = p.flags | (leaves_final(item, p.has_final) ? kFinal : 0) |
                      (p.first_stored != nullptr && item.begin == 0 ? kStores : 0);
  int sees = at.flags();
  for (int first = kFirst; at.valid(); first = 0, ++block) {
    BlockNote& note = begin_note(shared, block);
    if (threadIdx.x % 32 == 0) {
      note.row = at.row(), note.rows = at.rows(), note.head = at.head();
      note.key_row = item.own.row + keys.begin, note.keys = keys.size();
      note.kv_head = kv_head, note.item = entry.item;
      note.partner = at.partner(), note.begin = at.begin();
      note.entry_head = entry.head;
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

}  // namespace ringside::hopper::backward_detail
