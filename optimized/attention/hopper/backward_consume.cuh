// A consumer group of the backward kernel: 64 keys of an item, their dk and dv in registers, and
// half the columns of dq.
//
// Scores are computed transposed, [keys][queries], so that weights and d(scores) are the left
// operands of dv and dk as they lie in registers. d(scores) of both groups meet in shared memory
// for dq, which is computed a block late, under the softmax of the next: the groups need not keep
// step.
#pragma once

#include "optimized/attention/hopper/backward_tiles.cuh"

namespace ringside::hopper::backward_detail {

// One group's walk over the blocks of item after item.
template <typename T, Dq kDq>
struct Consumer {
  static constexpr bool kHasDq = kDq != Dq::none;

  const Parameters& parameters;
  Shared& shared;
  const int group;
  uint32_t block = 0, item = 0;  // how many are done

  __device__ __forceinline__ Barriers& barriers() const { return shared.barriers; }
  __device__ __forceinline__ int stage() const { return block % kStages; }
  __device__ __forceinline__ uint32_t parity() const { return block / kStages % 2; }
  __device__ __forceinline__ float scale() const { return parameters.shape.softmax_scale; }

  // What the note of the coming block says; there is Q then, too.
  __device__ __forceinline__ int wait_for_note() const {
    wait(barriers().q_full[stage()], parity());
    return __reduce_or_sync(~0u, shared.notes[block % kNotes].flags);
  }

  __device__ __forceinline__ uint64_t keys_of(const uint8_t* tile) const {
    return tile_descriptor(shared_address(tile) + group * kGroupKeys * 128);
  }
  __device__ __forceinline__ uint32_t ds_tile(uint32_t of_block) const {
    return shared_address(shared.ds[of_block % 2]);
  }

  // Starts dq of a block, of which both groups have written d(scores).
  __device__ __forceinline__ void start_dq(float (&dq)[32], uint32_t of_block) const {
    wait(barriers().ds_full[of_block % 2], of_block / 2 % 2);
    begin_products();
    multiply_keys<T>(dq, tile_descriptor(ds_tile(of_block)),
                     tile_descriptor(shared_address(shared.k) + group * kKeyPanel));
    commit_products();
  }
  // The same block's, when the products have come.
  __device__ __forceinline__ void hand_over_dq(const float (&dq)[32], uint32_t of_block) const {
    wait(barriers().dq_empty[group], (of_block & 1) ^ 1);
    store_dq<T, kDq>(shared_address(shared.dq[group]), dq, scale());
    show_to_async();
    arrive_as_warp(barriers().dq_full[group]);
  }
  __device__ __forceinline__ void hand_over_ds(const uint32_t (&ds)[4][4]) const {
    if constexpr (!kHasDq) return;
    store_scores(ds_tile(block) + group * kGroupKeys * 128, ds);
    show_to_async();
    arrive_as_warp(barriers().ds_full[block % 2]);
  }

  __device__ __forceinline__ void weigh_scores(float (&scores)[32], int flags) const {
    const QueryRows& rows = shared.rows[stage()];
    const int key = group * kGroupKeys + Place().row;
    if (flags >> group & kClearFor)
      weigh<true>(scores, rows, key, scale() * kLog2E);
    else
      weigh<false>(scores, rows, key, scale() * kLog2E);
  }

  // kLate: with dq of the block before.
  template <bool kLate>
  __device__ __forceinline__ void differentiate_block(int flags, float (&dk)[64],
                                                      float (&dv)[64]) const {
    const uint64_t q = tile_descriptor(shared_address(shared.q[stage()]), kQueryPanel);
    const uint64_t dout = tile_descriptor(shared_address(shared.dout[stage()]), kQueryPanel);
    float scores[32], grads[32];
    begin_products();
    multiply_rows<T>(scores, keys_of(shared.k), kKeyPanel, q, kQueryPanel);
    commit_products();
    if constexpr (kLate) {
      float dq[32];
      start_dq(dq, block - 1);
      wait(barriers().dout_full[stage()], parity());
      wait_for_products<1>();
      hopper::pin(scores);
      weigh_scores(scores, flags);
      wait_for_products<0>();
      hopper::pin(dq);
      hand_over_dq(dq, block - 1);
    } else {
      wait(barriers().dout_full[stage()], parity());
      wait_for_products<0>();
      hopper::pin(scores);
      weigh_scores(scores, flags);
    }
    begin_products();
    multiply_rows<T>(grads, keys_of(shared.v), kKeyPanel, dout, kQueryPanel);
    commit_products();
    uint32_t p[4][4], ds[4][4];
    as_left_operand<T>(p, scores);
    wait_for_products<0>();
    hopper::pin(grads);
    differentiate(grads, scores, shared.rows[stage()]);
    as_left_operand<T>(ds, grads);
    pin(p), pin(ds);
    begin_products();
    multiply_queries<T>(dv, p, dout);
    commit_products();
    multiply_queries<T>(dk, ds, q);
    commit_products();
    hand_over_ds(ds);
    wait_for_products<0>();
    hopper::pin(dv), hopper::pin(dk);
  }
  __device__ __forceinline__ void finish_dq(uint32_t of_block) const {
    float dq[32];
    start_dq(dq, of_block);
    wait_for_products<0>();
    hopper::pin(dq);
    hand_over_dq(dq, of_block);
  }

  template <bool kLate>
  __device__ __forceinline__ void take_block(int flags, float (&dk)[64], float (&dv)[64]) {
    differentiate_block<kLate>(flags, dk, dv);
    arrive_as_warp(barriers().dout_empty[stage()]);
    arrive_as_warp(barriers().q_empty[stage()]);
    ++block;
  }

  __device__ __forceinline__ void run() {
    for (int flags; ((flags = wait_for_note()) & kStop) == 0; ++item) {
      float dk[64], dv[64];
#pragma unroll
      for (int i = 0; i < 64; ++i) dk[i] = dv[i] = 0;
      hopper::pin(dk), hopper::pin(dv);
      wait(barriers().k_full, item & 1);
      wait(barriers().v_full, item & 1);
      take_block<false>(flags, dk, dv);
      while ((flags & kLast) == 0) {
        flags = wait_for_note();
        take_block<kHasDq>(flags, dk, dv);
      }
      arrive_as_warp(barriers().v_empty);
      const BlockNote note = shared.notes[(block - 1) % kNotes];
      if constexpr (kHasDq) finish_dq(block - 1);
      arrive_as_warp(barriers().k_empty);
      const AttentionShape& shape = parameters.shape;
      const int first_key = group * kGroupKeys;
      put_keys<T>(parameters, parameters.dk, note, first_key, shape.head_dim_qk, scale(), dk);
      put_keys<T>(parameters, parameters.dv, note, first_key, shape.head_dim_v, 1, dv);
    }
    if (kHasDq) arrive_as_warp(barriers().dq_full[group]);  // its sender finds the note to stop
  }
};

}  // namespace ringside::hopper::backward_detail
