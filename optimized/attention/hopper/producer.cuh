// The producer of the forward kernel, one warp: it takes items from the queue, walks over the
// blocks of keys that each meets, and keeps the copy engine busy, across the ends of items too.
#pragma once

#include "optimized/attention/hopper/bulk_tensor.h"
#include "optimized/attention/hopper/item_queue.cuh"
#include "optimized/attention/hopper/key_walk.cuh"

namespace ringside::hopper {

class Producer {
 public:
  __device__ Producer(const ForwardParameters& parameters, ForwardShared& shared)
      : p_(parameters), s_(shared), leads_(threadIdx.x % 32 == 0) {}

  __device__ void run() {
    for (ItemQueue queue(p_.work, p_.order, p_.taken); queue.valid(); queue.advance()) {
      const WorkItem item = queue.item();
      if (item.begin < item.end && is_sound(item))
        produce(item, queue);
      else
        queue.fetch_partner();
    }
    wait(s_.k_empty[ring_.stage], ring_.parity ^ 1);
    if (leads_) {
      s_.notes[ring_.stage].flags = kStop;
      arrive(s_.k_full[ring_.stage]);
    }
  }

 private:
  __device__ void produce(const WorkItem& item, ItemQueue& queue) {
    const int head = queue.head(), kv_head = kv_head_of(p_.shape, head);
    const int rows = item.end - item.begin;
    BlockNote note{item.own.row + item.begin, rows, head, 0};
    if (rows > kGroupRows) note.flags |= kBothHaveRows;
    const uint32_t flags_of_item = note.flags;
    load_queries(note);
    KeyWalk walk(p_.work, item, queue.first_partner());
    queue.fetch_partner();
    if (!walk.valid()) {  // a block that nobody sees, so that its rows are written
      note.flags |= kLastBlock;
      wait(s_.k_empty[ring_.stage], ring_.parity ^ 1);
      publish(note, 0, 0, kv_head);
    }
    while (walk.valid()) {
      note.flags = flags_of_item | walk.flags();
      wait(s_.k_empty[ring_.stage], ring_.parity ^ 1);
      if (note.is_masked(0) || note.is_masked(1)) walk.write(s_.seen[ring_.stage]);
      const int row = walk.row(), keys = walk.keys();
      walk.advance();
      if (!walk.valid()) note.flags |= kLastBlock;
      publish(note, row, keys, kv_head);
    }
  }

  __device__ void load_queries(const BlockNote& note) {
    for (int group = 0; group < kGroups && group * kGroupRows < note.rows; ++group) {
      wait(s_.q_empty[group], queries_loaded_[group] % 2 ^ 1);
      ++queries_loaded_[group];
      if (!leads_) continue;
      arrive_and_expect(s_.q_full[group], kGroupBytes);
      const int valid = rows_of_box(0, note.rows, group);
      load_tile(s_.q[group], kBoxBytes, p_.maps.q, note.head, note.row + group * kGroupRows, valid,
                s_.q_full[group]);
    }
  }

  // The note, the table of rows and, on their way, the keys and values of a block whose stage of
  // keys is empty.
  __device__ void publish(const BlockNote& note, int row, int keys, int kv_head) {
    const uint32_t halves = note.halves(0) | note.halves(1);
    const int stage = ring_.stage;
    if (leads_) s_.notes[stage] = note;
    __syncwarp();  // all of the table is written
    if (leads_) load_block(s_.k[stage], p_.maps.k, halves, kv_head, row, keys, s_.k_full[stage]);
    wait(s_.v_empty[stage], ring_.parity ^ 1);
    if (leads_) load_block(s_.v[stage], p_.maps.v, halves, kv_head, row, keys, s_.v_full[stage]);
    ring_.advance();
  }

  // Those halves of a block that some row sees.
  __device__ static void load_block(uint8_t* to, const CUtensorMap& map, uint32_t halves, int head,
                                    int row, int keys, Barrier& full) {
    arrive_and_expect(full, __popc(halves) * (kBlockBytes / 2));
    for (int half = 0; half < 2; ++half)
      if (halves >> half & 1)
        load_tile(to + half * kHalfBytes, kKeyPanelBytes, map, head, row + half * kHalfKeys,
                  rows_of_box(0, keys, half), full);
  }

  // A box of each panel.
  __device__ static void load_tile(uint8_t* to, int panel_bytes, const CUtensorMap& map, int head,
                                   int row, int valid, Barrier& full) {
    for (int panel = 0; panel < kHeadDim / kPanelColumns; ++panel)
      load_box(shared_address(to) + panel * panel_bytes, map,
               ragged_box(panel * kPanelColumns, head, row, valid), full);
  }

  const ForwardParameters& p_;
  ForwardShared& s_;
  bool leads_;
  RingPlace<kStages> ring_;
  uint32_t queries_loaded_[kGroups] = {};
};

}  // namespace ringside::hopper
