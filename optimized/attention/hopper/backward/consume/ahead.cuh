// A consumer group of the backward kernel whose registers have room for the next block's scores and
// d(weights) beside dk, dv and this one's weights: they are under way while d(scores) of this block
// and dq of the one before are handed over, and a block waits for few products of its own.
#pragma once

#include "optimized/attention/hopper/backward/consume/key_group.cuh"

namespace ringside::hopper::backward_detail {

// One group's walk over the blocks of item after item.
template <typename T, typename Shape, Dq kDq>
struct AheadConsumer : KeyGroup<T, Shape, kDq, Options::none> {
  using Base = KeyGroup<T, Shape, kDq, Options::none>;
  using Base::barriers, Base::stage, Base::keys_of, Base::read_note, Base::wait_for_queries;
  using Base::block, Base::item, Base::group, Base::thread, Base::shared, Base::parameters;
  using Base::kDkSums, Base::kDvSums, Base::kDqSums, Base::kHasDq, Base::kStages, Base::kKeyPanel;

  // Scores and d(weights) of a block of which there is Q. kFirst: an item's.
  template <bool kFirst>
  __device__ __forceinline__ void start(uint32_t of_block, float (&scores)[32],
                                        float (&grads)[32]) const {
    const uint32_t stage = of_block % kStages;
    wait(barriers().dout_full[stage], of_block / kStages % 2);
    begin_products();
    add_rows<T, Shape::kQk, false>(scores, keys_of(shared.k[item % Shape::kKeyStages]), kKeyPanel,
                                   tile_descriptor(shared_address(shared.q[stage])), kQueryPanel);
    commit_products();
    if constexpr (kFirst) wait(barriers().v_full, item & 1);
    begin_products();
    add_rows<T, Shape::kV, false>(grads, keys_of(shared.v), kKeyPanel,
                                  tile_descriptor(shared_address(shared.dout[stage])), kQueryPanel);
    commit_products();
  }

  // Where paths of control meet no product may be under way, or ptxas waits for each.
  static __device__ __forceinline__ void finish(float (&scores)[32], float (&grads)[32]) {
    wait_for_products<0>();
    hopper::pin(scores), hopper::pin(grads);
  }

  // A block of which there are scores and d(weights). kLate: not an item's first; with dq of the
  // block before, whose flags these are. kGoesOn: not the last; behind it the next one's are there.
  template <bool kLate, bool kGoesOn>
  __device__ __forceinline__ void take_block(int flags, int before, float (&scores)[32],
                                             float (&grads)[32], float (&dk)[kDkSums],
                                             float (&dv)[kDvSums]) {
    constexpr bool kWithDq = kLate && kHasDq;
    const uint64_t q = tile_descriptor(shared_address(shared.q[stage()]), kQueryPanel);
    const uint64_t dout = tile_descriptor(shared_address(shared.dout[stage()]), kQueryPanel);
    this->release_values(flags);
    float told = 0;
    typename Base::Ready ready;
    if constexpr (kWithDq) ready = this->ask_ahead();
    float2 shifts[8];
    load_of_queries(shifts, shared.rows[stage()].shift, thread);
    this->weigh_scores(flags, scores, shifts, this->scale_log2(), told);
    float2 minus_deltas[8];
    load_of_queries(minus_deltas, shared.rows[stage()].minus_delta, thread);
    differentiate(grads, scores, minus_deltas);
    this->hide_unseen(flags, grads, scores, told);
    uint32_t p[4][4], ds[4][4];
    as_left_operand<T>(p, scores);
    as_left_operand<T>(ds, grads);
    pin(p), pin(ds);
    if ((flags & (kWithDq ? before : kClear) & kClear) == 0) {
      if ((flags & kClear) == 0) this->drop_queries(flags, told);
      if constexpr (kWithDq) this->drop_keys(before, block - 1);
    }
    float dq[kDqSums];
    if constexpr (kWithDq) this->start_dq(dq, block - 1, ready.ds_full);
    begin_products();
    multiply_queries<T, kLate>(dv, p, dout);
    multiply_queries<T, kLate>(dk, ds, q);
    commit_products();
    this->hand_over_ds(ds, ready.ds_empty);
    if constexpr (kWithDq) {
      wait_for_products<1>();
      hopper::pin(dq);
      if ((before & kClear) == 0) this->item_keys().bring_again(shared.notes[block % kNotes]);
    }
    if constexpr (kGoesOn) {
      wait(barriers().q_full[(block + 1) % kStages], (block + 1) / kStages % 2);
      start<false>(block + 1, scores, grads);
    }
    if constexpr (kWithDq) this->hand_over_dq(dq, block - 1, this->turn(), ready.dq_empty);
    wait_for_products<kGoesOn ? 2 : 0>();
    hopper::pin(dk), hopper::pin(dv);
    this->release(block, flags);
    if constexpr (kGoesOn) finish(scores, grads);
    this->forget_descriptors(flags);
    ++block;
  }

  // One item; its first block's note is there.
  __device__ __forceinline__ void take_item(int flags) {
    float dk[kDkSums], dv[kDvSums], scores[32], grads[32];
    wait(barriers().k_full[item % Shape::kKeyStages], item / Shape::kKeyStages & 1);
    start<true>(block, scores, grads);
    finish(scores, grads);
    this->look_at_keys(Base::told_of_keys(told_by(scores), scores));
    take_block<false, false>(flags, kClear, scores, grads, dk, dv);
    if ((flags & kLast) == 0) {
      wait_for_queries();
      start<false>(block, scores, grads);
      finish(scores, grads);
      int before = flags;
      for (flags = read_note(); (flags & kLast) == 0; before = flags, flags = read_note())
        take_block<true, true>(flags, before, scores, grads, dk, dv);
      take_block<true, false>(flags, before, scores, grads, dk, dv);
    }
    if constexpr (kHasDq) this->drop_keys(flags, block - 1);
    if (kHasDq && (flags & kFinal) != 0)
      this->hand_over_results(dk, dv);
    else
      this->put_results(dk, dv);
  }

  __device__ __forceinline__ void run() { Base::walk(*this); }
};

}  // namespace ringside::hopper::backward_detail
