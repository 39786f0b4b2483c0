// The producer group of the backward kernel: one warp takes items off the queue, walks over their
// query blocks and loads; one warp for each consumer group sends its dq off.
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
    if (threadIdx.x % 32 == 0) next = atomicAdd(parameters.queue, 1u) + gridDim.x;
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
                            const BlockNote& note) const {
    if (threadIdx.x % 32 != 0) return;
    wait(empty, (item & 1) ^ 1);
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

// Of lane's rows: what the softmax left there. Rows that are not, or saw nothing, weigh nothing.
struct RowOfSoftmax {
  float shift = INFINITY, delta = 0;

  __device__ RowOfSoftmax(const Parameters& parameters, const BlockNote& note, int i) {
    if (i >= note.rows) return;
    const int64_t at = (int64_t{note.row} + i) * parameters.shape.num_heads + note.head;
    const float lse = __ldg(parameters.lse + at), of_dout = __ldg(parameters.delta + at);
    if (lse == -INFINITY) return;
    shift = lse * kLog2E, delta = of_dout;
  }
};

// Which of the item's keys a row sees.
__device__ inline int2 keys_of_row(const Parameters& parameters, const WorkItem& item,
                                   const Segment& q, int begin, int rows, int i) {
  if (i >= rows) return {0, 0};
  const Interval seen =
      sequence_mask(parameters.work, item).visible_rows(item.own, q.position(begin + i));
  const int first = max(seen.begin, item.begin) - item.begin;
  const int last = min(seen.end, item.end) - item.begin;
  return {first, max(last - first, 0)};
}

// Flags of a block by what its rows see: two rows a lane, of which some may not be.
__device__ inline int flags_of(const int2 (&seen)[2], int rows) {
  int flags = 0;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int begin = group * kGroupKeys, end = begin + kGroupKeys;
    bool some = false, all = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = seen[half].x, last = first + seen[half].y;
      some |= seen[half].y > 0 && first < end && last > begin;
      all &=
          static_cast<int>(threadIdx.x % 32) + 32 * half >= rows || (first <= begin && last >= end);
    }
    if (__any_sync(kEveryLane, some)) flags |= kSeenBy << group;
    if (__all_sync(kEveryLane, all)) flags |= kClearFor << group;
  }
  return (flags & (3 * kSeenBy)) == 0 ? flags | kSeenBy : flags;
}

// One item: its keys, then block after block.
__device__ inline void load_item(Loader& loader, const WorkItem& item, int kv_head) {
  const Parameters& p = loader.parameters;
  Shared& shared = loader.shared;
  Barriers& barriers = shared.barriers;
  QueryBlocks<kQueries> at(p.work, item, query_heads_of(p.shape, kv_head));
  if (!at.valid()) return;
  const int lane = threadIdx.x % 32, keys = item.end - item.begin;
  BlockNote note{0, 0, 0, 0, item.own.row + item.begin, keys, kv_head, 0};
  for (int first = kFirst; at.valid(); first = 0) {
    const int begin = at.begin, partner = at.partner, stage = loader.stage();
    const bool clear = keys == kKeys && at.is_clear();
    note.row = at.row + begin, note.rows = min(at.end - begin, kQueries), note.head = at.head;
    const RowOfSoftmax rows[2] = {{p, note, lane}, {p, note, lane + 32}};
    int2 seen[2] = {};
    note.flags = 15;
    if (!clear) {
      const Segment q = p.work.partners[partner];
      for (int half = 0; half < 2; ++half)
        seen[half] = keys_of_row(p, item, q, begin, note.rows, lane + 32 * half);
      note.flags = flags_of(seen, note.rows);
    }
    at.advance(p.work, item);
    note.flags |= first | (at.valid() ? 0 : kLast);

    if (first) loader.load_keys(p.v, shared.v, barriers.v_full, barriers.v_empty, note);
    wait(barriers.q_empty[stage], loader.parity() ^ 1);
    if (lane == 0) shared.notes[loader.block % kNotes] = note;
    loader.load_queries(p.q, shared.q[stage], barriers.q_full[stage], note);
    if (first) loader.load_keys(p.k, shared.k, barriers.k_full, barriers.k_empty, note);
    wait(barriers.dout_empty[stage], loader.parity() ^ 1);
    loader.load_queries(p.dout, shared.dout[stage], barriers.dout_full[stage], note);
    QueryRows& to = shared.rows[stage];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to.shift[lane + 32 * half] = rows[half].shift, to.delta[lane + 32 * half] = rows[half].delta;
      to.seen[lane + 32 * half] = seen[half];
    }
    __syncwarp();
    if (lane == 0) arrive(barriers.dout_full[stage]);
    ++loader.block;
  }
  ++loader.item;
}

__device__ inline void load_everything(const Parameters& parameters, Shared& shared) {
  Loader loader{parameters, shared};
  Queue queue(parameters);
  for (unsigned index; (index = queue.take()) < queue.size;) {
    const QueueEntry entry = parameters.order.at(index, queue.items);
    const WorkItem& item = parameters.work.items[entry.item];
    if (item.begin < item.end) load_item(loader, item, entry.head);
  }
  const int stage = loader.stage();
  wait(shared.barriers.q_empty[stage], loader.parity() ^ 1);
  if (threadIdx.x % 32 != 0) return;
  shared.notes[loader.block % kNotes] = {0, 0, 0, kStop, 0, 0, 0, 0};
  arrive(shared.barriers.q_full[stage]);
}

// Sends off what a group has left of dq, until it has nothing more; by one thread.
template <Dq kDq>
__device__ void send_dq(const Parameters& parameters, Shared& shared, int group) {
  Barriers& barriers = shared.barriers;
  const uint32_t tile = shared_address(shared.dq[group]);
  for (uint32_t block = 0;; ++block) {
    wait(barriers.dq_full[group], block & 1);
    const BlockNote note = shared.notes[block % kNotes];
    if (note.flags & kStop) return;
    if constexpr (kDq == Dq::add) {
      for (int panel = 0; panel < 2; ++panel)
        add_box(parameters.dq, ragged_box(group * 64 + panel * 32, note.head, note.row, note.rows),
                tile + panel * kQueryPanel);
    } else {
      store_box(parameters.dq, ragged_box(group * 64, note.head, note.row, note.rows), tile);
    }
    commit_stores();
    wait_until_read<0>();
    arrive(barriers.dq_empty[group]);
  }
}

}  // namespace ringside::hopper::backward_detail
