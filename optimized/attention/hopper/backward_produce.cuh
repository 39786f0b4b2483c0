// The producer group of the backward kernel: one warp takes items off the queue, walks over their
// query blocks and loads; one loads what the softmax left of their rows; and one for each consumer
// group sends its dq off.
#pragma once

#include "optimized/attention/hopper/backward_blocks.cuh"

namespace ringside::hopper::backward_detail {

inline constexpr unsigned kEveryLane = ~0u;

// The queue: one item ahead.
struct Queue {
  const Parameters& parameters;
  int items;
  unsigned size, coming;

  __device__ explicit Queue(const Parameters& p)
      : parameters(p),
        items(min(*p.work.num_items, p.work.max_items)),
        size(static_cast<unsigned>(p.order.size(max(items, 0)))) {
    coming = blockIdx.x;
  }
  __device__ unsigned take() {
    const unsigned index = coming;
    if (index >= size) return index;
    unsigned next = 0;
    if (threadIdx.x % 32 == 0) next = atomicAdd(parameters.taken, 1u) + gridDim.x;
    coming = __shfl_sync(kEveryLane, next, 0);
    return index;
  }
};

struct Loader {
  const Parameters& parameters;
  Shared& shared;
  uint32_t block = 0, item = 0;  // how many were loaded

  __device__ int stage() const { return block % kStages; }
  __device__ uint32_t parity() const { return block / kStages % 2; }

  __device__ void load_keys(const CUtensorMap& map, uint8_t* tile, Barrier& full, Barrier& empty,
                            uint32_t parity, const BlockNote& note) const {
    if (threadIdx.x % 32 != 0) return;
    wait(empty, parity);
    arrive_and_expect(full, kKeyTile);
    const uint32_t to = shared_address(tile);
    for (int panel = 0; panel < 2; ++panel)
      for (int half = 0; half < 2; ++half)
        load_box(to + panel * kKeyPanel + half * kQueryPanel, map,
                 ragged_box(panel * kPanelColumns, note.kv_head, note.key_row + half * kBoxRows,
                            rows_of_box(0, note.keys, half)),
                 full);
  }
  __device__ void load_queries(const CUtensorMap& map, uint8_t* tile, Barrier& full,
                               const BlockNote& note) const {
    if (threadIdx.x % 32 != 0) return;
    arrive_and_expect(full, kQueryTile);
    const uint32_t to = shared_address(tile);
    for (int panel = 0; panel < 2; ++panel)
      load_box(to + panel * kQueryPanel, map,
               ragged_box(panel * kPanelColumns, note.head, note.row, note.rows), full);
  }
};

// One item: its keys, then block after block. By all lanes of a warp.
__device__ inline void load_item(Loader& loader, int index, int kv_head) {
  const Parameters& p = loader.parameters;
  Shared& shared = loader.shared;
  Barriers& barriers = shared.barriers;
  const WorkItem& item = p.work.items[index];
  if (item.begin >= item.end) return;
  QueryBlocks<kQueries> at(p.work, item, query_heads_of(p.shape, kv_head));
  if (!at.valid()) return;
  const int lane = threadIdx.x % 32, keys = item.end - item.begin;
  const uint32_t key_stage = loader.item % kKeyStages;
  BlockNote note{0, 0, 0, 0, item.own.row + item.begin, keys, kv_head, index, 0, 0};
  for (int first = kFirst; at.valid(); first = 0) {
    const int stage = loader.stage();
    note.partner = at.partner, note.begin = at.begin;
    note.row = at.row + at.begin, note.rows = min(at.end - at.begin, kQueries), note.head = at.head;
    const bool clear = keys == kKeys && at.is_clear();
    at.advance(p.work, item);
    note.flags = first | (clear ? kClear : 0) | (at.valid() ? 0 : kLast);
    if (lane == 0) {
      shared.notes[loader.block % kNotes] = note;
      arrive(barriers.note_full[loader.block % kNotes]);
    }
    if (first)
      loader.load_keys(p.maps.k, shared.k[key_stage], barriers.k_full[key_stage],
                       barriers.k_empty[key_stage], (loader.item / kKeyStages & 1) ^ 1, note);
    wait(barriers.q_empty[stage], loader.parity() ^ 1);
    loader.load_queries(p.maps.q, shared.q[stage], barriers.q_full[stage], note);
    wait(barriers.dout_empty[stage], loader.parity() ^ 1);
    loader.load_queries(p.maps.dout, shared.dout[stage], barriers.dout_full[stage], note);
    if (first)
      loader.load_keys(p.maps.v, shared.v, barriers.v_full, barriers.v_empty, (loader.item & 1) ^ 1,
                       note);
    ++loader.block;
  }
  ++loader.item;
}

__device__ inline void load_everything(const Parameters& parameters, Shared& shared) {
  Loader loader{parameters, shared};
  Queue queue(parameters);
  for (unsigned index; (index = queue.take()) < queue.size;) {
    const QueueEntry entry = parameters.order.at(index, queue.items);
    load_item(loader, entry.item, entry.head);
  }
  const int stage = loader.stage();
  wait(shared.barriers.q_empty[stage], loader.parity() ^ 1);
  if (threadIdx.x % 32 != 0) return;
  shared.notes[loader.block % kNotes] = {0, 0, 0, kStop, 0, 0, 0, 0, 0, 0};
  arrive(shared.barriers.note_full[loader.block % kNotes]);
  arrive(shared.barriers.q_full[stage]);
}

// Which of the item's keys a row of a block sees.
__device__ inline short2 keys_of_row(const Parameters& parameters, const BlockNote& note, int i) {
  if (i >= note.rows) return {0, 0};
  const WorkItem& item = parameters.work.items[note.item];
  const int query = parameters.work.partners[note.partner].position(note.begin + i);
  const Interval seen = sequence_mask(parameters.work, item).visible_rows(item.own, query);
  const int first = max(seen.begin, item.begin), last = min(seen.end, item.end);
  return {static_cast<short>(first - item.begin), static_cast<short>(max(last - first, 0))};
}

// Bits of the groups whose keys all of a lane's rows see, or of which it has none.
__device__ inline int groups_seen(short2 seen, bool is_row) {
  int groups = 0;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int begin = group * kGroupKeys, end = begin + kGroupKeys;
    if (!is_row || (seen.x <= begin && seen.x + seen.y >= end)) groups |= 1 << group;
  }
  return groups;
}

// What the softmax left of the rows of every block; rows that are not there weigh nothing. By all
// lanes of a warp, of two rows each.
__device__ inline void load_rows(const Parameters& parameters, Shared& shared) {
  constexpr int kRows = kQueries / 32;
  const int lane = threadIdx.x % 32;
  for (uint32_t block = 0;; ++block) {
    wait(shared.barriers.note_full[block % kNotes], block / kNotes % 2);
    const BlockNote note = shared.notes[block % kNotes];
    if (note.flags & kStop) return;
    float lse[kRows], delta[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = note.row + min(lane + 32 * i, note.rows - 1);
      const int64_t at = int64_t{row} * parameters.shape.num_heads + note.head;
      lse[i] = __ldg(parameters.lse + at), delta[i] = __ldg(parameters.delta + at);
    }
    short2 seen[kRows] = {};
    int clear = 3;
    if ((note.flags & kClear) == 0) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        seen[i] = keys_of_row(parameters, note, lane + 32 * i);
        clear &= groups_seen(seen[i], lane + 32 * i < note.rows);
      }
      clear = __reduce_and_sync(kEveryLane, clear);
    }
    const uint32_t stage = block % kStages;
    wait(shared.barriers.dout_empty[stage], block / kStages % 2 ^ 1);
    QueryRows& to = shared.rows[stage];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = lane + 32 * i;
      const bool is_row = row < note.rows;
      // Of scores of -inf, which have that lse, no -inf - -inf; NaN stays.
      const float shift = lse[i] == -INFINITY ? -1e30f : lse[i] * kLog2E;
      to.shift[row] = is_row ? shift : INFINITY, to.delta[row] = is_row ? delta[i] : 0;
      to.seen[row] = seen[i];
    }
    if (lane == 0) to.clear = clear;
    __syncwarp();
    if (lane == 0) arrive(shared.barriers.dout_full[stage]);
  }
}

// Sends off what a group has left of dq, until it has nothing more; by one thread.
template <Dq kDq>
__device__ void send_dq(const Parameters& parameters, Shared& shared, int group) {
  Barriers& barriers = shared.barriers;
  const uint32_t tile = shared_address(shared.dq[group]);
  uint32_t items = 0;  // that have begun
  for (uint32_t block = 0;; ++block) {
    wait(barriers.dq_full[group], block & 1);
    const BlockNote note = shared.notes[block % kNotes];
    if (note.flags & kStop) return;
    if (note.flags & kFirst) ++items;
    if ((note.flags & kClear) == 0 && shared.keys_found[group][(items - 1) % kKeyStages] != 0) {
      arrive(barriers.dq_empty[group]);  // another launch adds it: seen_pairs.cuh
      continue;
    }
    if constexpr (kDq == Dq::add) {
      for (int panel = 0; panel < 2; ++panel)
        add_box(parameters.maps.dq,
                ragged_box(group * 64 + panel * 32, note.head, note.row, note.rows),
                tile + panel * kQueryPanel);
    } else {
      store_box(parameters.maps.dq, ragged_box(group * 64, note.head, note.row, note.rows), tile);
    }
    commit_stores();
    wait_until_read<0>();
    arrive(barriers.dq_empty[group]);
  }
}

}  // namespace ringside::hopper::backward_detail
