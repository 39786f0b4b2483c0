// The producers of the forward kernel, two warps: each takes items from the queue, walks over the
// blocks of keys that they meet, and keeps the copy engine busy, across the ends of items too. They
// take turns, an item each: while one waits for room, the other finds out what its item sees. A
// third warp brings the values, which are needed behind the next block's keys and have room later:
// keys and queries do not wait for that. A fourth inspects them.
#pragma once

#include "optimized/attention/hopper/forward/forward.cuh"
#include "optimized/attention/hopper/forward/key_walk.cuh"
#include "optimized/attention/hopper/machine/bulk_tensor.h"

namespace ringside::hopper {

// Keys or values of a block: a box of each panel, of which rows behind the valid ones are zeros.
template <int kColumns>
__device__ inline void load_tile(uint8_t* to, int panel_bytes, const CUtensorMap& map, int head,
                                 int row, int valid, Barrier& full) {
#pragma unroll 1  // here and below: instructions have to fit the cache of a multiprocessor
  for (int panel = 0; panel < kColumns / kPanelColumns; ++panel)
    load_box(shared_address(to) + panel * panel_bytes, map,
             ragged_box(panel * kPanelColumns, head, row, valid), full);
}
template <typename Shape>
__device__ inline void load_keys(ForwardShared<Shape>& s, int stage, const ForwardMaps& maps,
                                 const LoadedBlock& block) {
  Barrier& full = s.k_full[stage];
  if (!block.is_seen()) return arrive(full);
  arrive_and_expect(full, Shape::kKeyBytes);
  load_tile<Shape::kQk>(s.k[stage], Shape::kPanelBytes, maps.k, block.kv_head, block.row,
                        block.keys, full);
}
// Behind the last key that is seen zeros follow, which weights of 0 meet.
template <typename Shape>
__device__ inline void load_values(ForwardShared<Shape>& s, int stage, const ForwardMaps& maps,
                                   const LoadedBlock& block) {
  Barrier& full = block.is_inspected() ? s.v_landed[stage] : s.v_full[stage];
  if (!block.is_inspected()) arrive_instead_of_others(full);
  if (!block.is_seen()) return arrive(full);
  arrive_and_expect(full, Shape::kValueBytes);
  load_tile<Shape::kV>(s.v[stage], Shape::kPanelBytes, maps.v, block.kv_head, block.row, block.keys,
                       full);
}

// The values of blocks, in the order of their tasks: by one thread.
template <typename Shape>
__device__ inline void load_values(const ForwardParameters& p, ForwardShared<Shape>& s) {
  constexpr uint32_t kStages = Shape::kStages, kValueTasks = Shape::kValueTasks;
  for (uint32_t number = 0;; ++number) {
    const int task = number % kValueTasks, stage = number % kStages;
    wait(s.value_task_full[task], number / kValueTasks % 2);
    const LoadedBlock block = s.value_tasks[task];
    if (block.is_none()) return;
    arrive(s.value_task_empty[task]);
    wait(s.v_empty[stage], number / kStages % 2 ^ 1);
    load_values(s, stage, p.maps, block);
  }
}

// visit(16 bytes) for what was loaded of a block, by a warp; a few at a time.
template <typename Shape, typename Visit>
__device__ inline void for_each_chunk(uint8_t* tile, Visit visit) {
#pragma unroll 1
  for (int panel = 0; panel < Shape::kV / kPanelColumns; ++panel)
#pragma unroll 4
    for (int at = static_cast<int>(threadIdx.x) % 32 * 16; at < Shape::kPanelBytes; at += 32 * 16)
      visit(reinterpret_cast<uint4&>(tile[panel * Shape::kPanelBytes + at]));
}

// Values of blocks that are seen in part, between the copy engine and consumers: 0 in the place of
// what is not finite (seen_pairs.cuh). By one warp.
template <typename T, typename Shape>
__device__ inline void inspect_values(const ForwardParameters& p, ForwardShared<Shape>& s) {
  constexpr uint32_t kStages = Shape::kStages, kValueTasks = Shape::kValueTasks;
  uint32_t parities = 0;  // of what lands in a stage, a bit each
  for (uint32_t number = 0;; ++number) {
    const int task = number % kValueTasks, stage = number % kStages;
    wait(s.value_task_full[task], number / kValueTasks % 2);
    const LoadedBlock block = s.value_tasks[task];
    arrive_as_warp(s.value_task_empty[task]);
    if (block.is_none()) return;
    if (!block.is_inspected()) continue;
    wait(s.v_landed[stage], parities >> stage & 1);
    parities ^= 1u << stage;
    FiniteCheck<T> check;
    for_each_chunk<Shape>(s.v[stage], [&](const uint4& chunk) { check.look_at(chunk); });
    if (!__all_sync(~0u, check.all_finite())) {
      for_each_chunk<Shape>(s.v[stage], [](uint4& chunk) { chunk = finite_part<T>(chunk); });
      *p.dropped = 1;
      show_to_async();
    }
    arrive_as_warp(s.v_full[stage]);
  }
}

template <typename Shape, Options kOptions>
class Producer {
 public:
  __device__ Producer(const Parameters<kOptions>& parameters, Shared<Shape, kOptions>& shared)
      : p_(parameters), s_(shared), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    ItemQueue queue(p_.work, p_.order, p_.taken, warp(), s_.taken_items[warp()]);
    for (; queue.valid(); queue.advance()) produce(queue);
    int idle = 0;
    while (idle < kProducers) {
      idle = take_turn() + 1;
      if (idle > kProducers) return;
      if (idle == kProducers) stop_consumers();
      pass_turn(idle);
    }
  }

 private:
  static constexpr uint32_t kStages = Shape::kStages, kItemStages = Shape::kItemStages;
  static constexpr uint32_t kValueTasks = Shape::kValueTasks;

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }

  // Returns how many turns before this one were idle.
  __device__ int take_turn() {
    wait(s_.turn_full[warp()], (turns_ & 1) ^ (warp() == 0 ? 1 : 0));  // it begins with the first
    ++turns_;
    const int idle = s_.turn.idle;
    blocks_ = s_.turn.blocks;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) queries_[group] = s_.turn.queries[group];
    __syncwarp();
    return idle;
  }
  __device__ void pass_turn(int idle) {
    if (lane_ == 0) {
      s_.turn.blocks = blocks_, s_.turn.idle = idle;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) s_.turn.queries[group] = queries_[group];
    }
    arrive_as_warp(s_.turn_full[(warp() + 1) % kProducers]);
  }

  __device__ void stop_consumers() {
    wait_for_room(s_.k_empty);
    if (lane_ == 0) s_.notes[blocks_ % kStages].flags = kStop;
    arrive_as_warp(s_.k_full[blocks_ % kStages]);
    if (lane_ == 0) give_values({LoadedBlock::kNoMore});
    __syncwarp();
  }

  // For the coming block.
  __device__ void wait_for_room(Barrier (&empty)[kStages]) const {
    wait(empty[blocks_ % kStages], blocks_ / kStages % 2 ^ 1);
  }

  __device__ void produce(ItemQueue& queue) {
    const WorkItem& item = queue.item();
    if (item.begin < item.end && is_sound(item))
      produce(queue, item);
    else
      queue.ask(), queue.fetch_item(), queue.fetch_partner();
  }

  __device__ void produce(ItemQueue& queue, const WorkItem& item) {
    const int rows = item.end - item.begin;
    const uint32_t flags = flags_of(item) | (rows > kGroupRows ? kBothHaveRows : 0);
    note_ = {item.own.row + item.begin, rows, queue.head(), flags};
    KeyWalk<Shape::kKeys> walk(p_.work, queue, s_.seen_of_segment[warp()]);
    kv_head_ = kv_head_of(p_.shape, note_.head);
    take_turn();
    queue.ask();
    load_queries();
    if (!walk.valid()) {  // a block that nobody sees, so that its rows are written
      wait_for_room(s_.k_empty);
      note_.flags |= kLastBlock;
      publish(0, 0);
    }
    int fetched = 0;
    while (walk.valid()) {
      note_.flags = flags | walk.flags();
      wait_for_room(s_.k_empty);
      if (note_.is_masked(0) || note_.is_masked(1)) walk.write(s_.seen[blocks_ % kStages]);
      if constexpr (kKnowsPlaces<kOptions>) write_place(item, walk);
      const int row = walk.row(), keys = walk.keys();
      walk.advance();
      if (!walk.valid()) note_.flags |= kLastBlock;
      publish(row, keys);
      if (walk.valid()) fetch_next(queue, fetched);
    }
    pass_turn(0);
    fetch_next(queue, fetched);
    fetch_next(queue, fetched);
  }

  // Of all notes of an item.
  __device__ uint32_t flags_of(const WorkItem& item) const {
    const uint32_t final = leaves_final(item, p_.has_final) ? kFinal : 0;
    return (item.alone & kAloneBefore) != 0 ? final | (p_.flags & kFinal) : final | p_.flags;
  }

  __device__ void write_place(const WorkItem& item, const KeyWalk<Shape::kKeys>& walk) {
    if (lane_ != 0) return;
    const SequenceMask mask{p_.work.mask, item.len_q, item.len_k};
    s_.places[blocks_ % kStages] =
        ScorePlace(p_.scores, mask, item.own, item.begin, walk.partner(), walk.begin());
  }

  // A step towards the next item, of two: each waits for the one before.
  __device__ static void fetch_next(ItemQueue& queue, int& fetched) {
    if (fetched == 0) queue.fetch_item();
    if (fetched == 1) queue.fetch_partner();
    ++fetched;
  }

  __device__ void load_queries() {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int valid = rows_of_box(0, note_.rows, group);
      if (valid <= 0) return;
      const uint32_t before = queries_[group]++, stage = before % kItemStages;
      wait(s_.q_empty[stage][group], before / kItemStages % 2 ^ 1);
      if (lane_ != 0) continue;
      arrive_and_expect(s_.q_full[stage][group], Shape::kQueryBytes);
      load_tile<Shape::kQk>(s_.q[stage][group], kBoxBytes, p_.maps.q, note_.head,
                            note_.row + group * kGroupRows, valid, s_.q_full[stage][group]);
    }
  }

  // The note, the table of rows and, on their way, the keys of a block whose stage of keys is
  // empty; its values are another warp's.
  __device__ void publish(int row, int keys) {
    const int stage = blocks_ % kStages;
    if (lane_ == 0) s_.notes[stage] = note_;
    __syncwarp();  // all of the table is written
    const uint32_t seen = note_.sees(0) || note_.sees(1) ? LoadedBlock::kSeen : 0;
    const uint32_t inspected = note_.is_clear() ? 0 : LoadedBlock::kInspected;
    const LoadedBlock block{seen | inspected, row, keys, kv_head_};
    if (lane_ == 0) {
      load_keys<Shape>(s_, stage, p_.maps, block);
      give_values(block);
    }
    arrive_beside_first(s_.k_full[stage]);
    ++blocks_;
  }

  // Of the coming block, to the warps that load and inspect them, which are never so far behind
  // that this waits for long: its keys have room where the values of the block but two before have
  // landed.
  __device__ void give_values(const LoadedBlock& block) {
    const int task = blocks_ % kValueTasks;
    wait(s_.value_task_empty[task], blocks_ / kValueTasks % 2 ^ 1);
    s_.value_tasks[task] = block;
    arrive(s_.value_task_full[task]);
  }

  const Parameters<kOptions>& p_;
  Shared<Shape, kOptions>& s_;
  int lane_, kv_head_ = 0;
  uint32_t turns_ = 0;  // of this one
  BlockNote note_;
  uint32_t blocks_ = 0, queries_[kGroups] = {};  // as the turn has them
};

}  // namespace ringside::hopper
