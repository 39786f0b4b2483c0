// The producer of the forward kernel, one warp: it takes items from the queue, walks over the
// blocks of keys that each meets, and keeps the copy engine busy, across the ends of items too.
#pragma once

#include "optimized/attention/hopper/bulk_tensor.h"
#include "optimized/attention/hopper/forward.cuh"
#include "optimized/attention/hopper/key_walk.cuh"

namespace ringside::hopper {

class Producer {
 public:
  __device__ Producer(const ForwardParameters& parameters, ForwardShared& shared)
      : p_(parameters), s_(shared), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    for (ItemQueue queue(p_.work, p_.order, p_.taken); queue.valid(); queue.advance())
      produce(queue);
    wait(s_.k_empty[ring_.stage], ring_.parity ^ 1);
    if (lane_ == 0) {
      s_.notes[ring_.stage].flags = kStop;
      arrive(s_.k_full[ring_.stage]);
    }
  }

 private:
  __device__ void produce(ItemQueue& queue) {
    const WorkItem item = queue.item();
    if (item.begin >= item.end || !is_sound(item)) return queue.fetch_partner();
    const int rows = item.end - item.begin;
    const uint32_t flags = rows > kGroupRows ? kBothHaveRows : 0;
    note_ = {item.own.row + item.begin, rows, queue.head(), flags};
    kv_head_ = kv_head_of(p_.shape, note_.head);
    load_queries();
    KeyWalk walk(p_.work, queue, s_.seen_of_segment);
    queue.fetch_partner();
    if (!walk.valid()) {  // a block that nobody sees, so that its rows are written
      wait(s_.k_empty[ring_.stage], ring_.parity ^ 1);
      note_.flags |= kLastBlock;
      publish(0, 0);
    }
    while (walk.valid()) {
      note_.flags = flags | walk.flags();
      wait(s_.k_empty[ring_.stage], ring_.parity ^ 1);
      if (note_.is_masked(0) || note_.is_masked(1)) walk.write(s_.seen[ring_.stage]);
      const int row = walk.row(), keys = walk.keys();
      walk.advance();
      if (!walk.valid()) note_.flags |= kLastBlock;
      publish(row, keys);
    }
  }

  struct Block {
    uint32_t halves;  // that some row sees
    int row, keys;
  };

  __device__ void load_queries() {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int valid = rows_of_box(0, note_.rows, group);
      if (valid <= 0) return;
      wait(s_.q_empty[group], ~(queries_loaded_ >> group) & 1);
      queries_loaded_ ^= 1u << group;
      if (lane_ != 0) continue;
      arrive_and_expect(s_.q_full[group], kGroupBytes);
      load_tile(s_.q[group], kBoxBytes, p_.maps.q, note_.head, note_.row + group * kGroupRows,
                valid, s_.q_full[group]);
    }
  }

  // The note, the table of rows and, on their way, the keys and values of a block whose stage of
  // keys is empty.
  __device__ void publish(int row, int keys) {
    const int stage = ring_.stage;
    if (lane_ == 0) s_.notes[stage] = note_;
    __syncwarp();  // all of the table is written
    const Block block{note_.halves(0) | note_.halves(1), row, keys};
    if (lane_ == 0) load_block(s_.k[stage], p_.maps.whole_k, p_.maps.k, block, s_.k_full[stage]);
    if (holds_) load_values();
    held_ = block, holds_ = true;
    if (note_.flags & kLastBlock) load_values();
    ring_.advance();
  }

  // Of the block before: they are needed behind the next one's keys.
  __device__ void load_values() {
    const int stage = values_.stage;
    wait(s_.v_empty[stage], values_.parity ^ 1);
    if (lane_ == 0) load_block(s_.v[stage], p_.maps.whole_v, p_.maps.v, held_, s_.v_full[stage]);
    values_.advance();
    holds_ = false;
  }

  // Keys or values.
  __device__ void load_block(uint8_t* to, const CUtensorMap& whole, const CUtensorMap& half,
                             const Block& block, Barrier& full) const {
    const auto [halves, row, keys] = block;
    if (halves == kBothHalves) {
      arrive_and_expect(full, kBlockBytes);
      load_tile(to, kKeyPanelBytes, whole, kv_head_, row, keys, full);
    } else if (halves != kNoHalf) {
      const int first_key = halves == kSecondHalf ? kHalfKeys : 0;
      arrive_and_expect(full, kBlockBytes / 2);
      load_tile(to + first_key * kSwizzledBytes, kKeyPanelBytes, half, kv_head_, row + first_key,
                keys - first_key, full);
    } else {
      arrive(full);
    }
  }

  // A box of each panel.
  __device__ static void load_tile(uint8_t* to, int panel_bytes, const CUtensorMap& map, int head,
                                   int row, int valid, Barrier& full) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      load_box(shared_address(to) + panel * panel_bytes, map,
               ragged_box(panel * kPanelColumns, head, row, valid), full);
  }

  static constexpr int kPanels = kHeadDim / kPanelColumns;

  const ForwardParameters& p_;
  ForwardShared& s_;
  int lane_, kv_head_ = 0;
  BlockNote note_;
  RingPlace<kStages> ring_, values_;
  Block held_{};  // whose keys are on their way
  bool holds_ = false;
  uint32_t queries_loaded_ = 0;  // a bit a group: whether an odd number of times
};

}  // namespace ringside::hopper
