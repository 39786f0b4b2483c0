// A consumer group of the backward kernel: 64 keys of an item, their dk and dv in registers, and
// half the columns of dq.
//
// Scores are computed transposed, [keys][queries], so that weights and d(scores) are the left
// operands of dv and dk as they lie in registers. d(scores) of both groups meet in shared memory
// for dq, which is computed a block late and sent off under the products of dk and dv: the groups
// need not keep step.
#pragma once

#include "optimized/attention/hopper/backward/consume/capped.cuh"
#include "optimized/attention/hopper/backward/consume/key_group.cuh"
#include "optimized/attention/hopper/backward/consume/score_options.cuh"

namespace ringside::hopper::backward_detail {

// One group's walk over the blocks of item after item.
template <typename T, typename Shape, Dq kDq, Options kOptions>
struct Consumer : KeyGroup<T, Shape, kDq, kOptions> {
  using Base = KeyGroup<T, Shape, kDq, kOptions>;
  using Base::barriers, Base::stage, Base::parity, Base::keys_of, Base::read_note;
  using Base::block, Base::item, Base::group, Base::thread, Base::shared, Base::parameters;
  using Base::hand_over_ds, Base::hand_over_dq, Base::turn, Base::end_block, Base::release_values;
  using Base::is_unseen, Base::is_alone, Base::clear_sums, Base::kAllOptions;
  using Base::kDkSums, Base::kDvSums, Base::kDqSums, Base::kHasDq, Base::kKeyPanel;
  using Base::kKeyStages, Base::kSeenStages, Base::item_keys, Base::drop_keys, Base::start_dq;

  __device__ __forceinline__ void start_scores(float (&scores)[32]) const {
    begin_products();
    multiply_rows<T, Shape::kQk>(scores, keys_of(shared.k[item % kKeyStages]), kKeyPanel,
                                 tile_descriptor(shared_address(shared.q[stage()])), kQueryPanel);
    commit_products();
  }

  // To minus delta, but for options that multiply them first.
  __device__ __forceinline__ void start_grads(float (&grads)[32], uint64_t dout) const {
    begin_products();
    if constexpr (kAllOptions)
      multiply_rows<T, Shape::kV>(grads, keys_of(shared.v), kKeyPanel, dout, kQueryPanel);
    else
      add_rows<T, Shape::kV>(grads, keys_of(shared.v), kKeyPanel, dout, kQueryPanel);
    commit_products();
  }

  // What the plain way does in three steps. Whether all of the group's keys are seen.
  __device__ __forceinline__ void differentiate_with_options(float (&scores)[32],
                                                             float (&grads)[32]) const {
    const SeenKeysOfRows& seen = shared.seen[block % kSeenStages];
    const ScorePlace& place = shared.places[block % kSeenStages];
    const QueryRows& rows = shared.rows[stage()];
    const int head = shared.notes[block % kNotes].head, first_key = group * kGroupKeys;
    if (__reduce_or_sync(~0u, seen.clear) >> group & 1)
      backward_detail::differentiate<true>(scores, grads, rows, seen, parameters.scores, place,
                                           head, first_key, thread);
    else
      backward_detail::differentiate<false>(scores, grads, rows, seen, parameters.scores, place,
                                            head, first_key, thread);
  }

  // A block of which there are the queries. kLate: an item's first has passed, and its note is read
  // here; with dq of the block before, which is sent off under the products of dk and dv.
  template <bool kLate>
  __device__ __forceinline__ void take_block(int& flags, float (&dk)[kDkSums],
                                             float (&dv)[kDvSums]) {
    const uint64_t q = tile_descriptor(shared_address(shared.q[stage()]), kQueryPanel);
    const uint64_t dout = tile_descriptor(shared_address(shared.dout[stage()]), kQueryPanel);
    float scores[32], grads[32];
    // Before the scores, whose products keep shared memory busy: d(weights) wait for these.
    float2 minus_deltas[8];
    wait(barriers().dout_full[stage()], parity());
    if constexpr (!kAllOptions)
      load_of_queries(minus_deltas, shared.rows[stage()].minus_delta, thread);
    const auto begin_grads = [&] {
      if constexpr (!kAllOptions) spread(grads, minus_deltas);
      if constexpr (!kAllOptions) hopper::pin(grads);
    };
    const float by = kOptions == Options::none ? this->scale_log2() : 0;
    if constexpr (!kLate) begin_grads();
    start_scores(scores);
    if constexpr (kLate)
      begin_grads();
    else
      wait(barriers().v_full, item & 1);
    if constexpr (kAllOptions) start_grads(grads, dout);
    const int before = kLate && kHasDq ? flags : kClear;
    if constexpr (kLate) flags = read_note();
    uint32_t p[4][4], ds[4][4];
    typename Base::Ready ready;
    // Where somebody asks. Options leave no registers for it: they say that it may not be finite.
    float told = kAllOptions ? NAN : 0, told_of_keys = told;
    if constexpr (kAllOptions) {
      wait_for_products<0>();
      hopper::pin(scores), hopper::pin(grads);
      if constexpr (kLate && kHasDq) ready = this->ask_ahead();
      release_values(flags);
      differentiate_with_options(scores, grads);
    } else {
      float2 shifts[8];
      const auto load_shifts = [&] { load_of_queries(shifts, shared.rows[stage()].shift, thread); };
      if constexpr (kOptions == Options::none) load_shifts();
      // Both at once would take turns with the other group's at the tensor cores, and groups wait
      // for products at one time, and compute at one time.
      wait_for_products<0>();
      hopper::pin(scores);
      start_grads(grads, dout);
      if constexpr (!kLate) told_of_keys = Base::told_of_keys(told_by(scores), scores);
      if constexpr (kOptions == Options::none)
        this->weigh_scores(flags, scores, shifts, by, told);
      else if ((flags & kClear) == 0)
        told = told_by(scores);
      if constexpr (kOptions == Options::softcap) {
        bend_scores(scores, parameters.scores);
        load_shifts();  // for which there are no registers before
      }
      wait_for_products<0>();
      hopper::pin(grads);
      if constexpr (kLate && kHasDq) ready = this->ask_ahead();
      release_values(flags);
      if constexpr (kOptions == Options::none)
        differentiate(grads, scores);
      else
        differentiate_bent(scores, grads, shifts, parameters.scores.near);
      this->hide_unseen(flags, grads, scores, told);
    }
    as_left_operand<T>(p, scores);
    as_left_operand<T>(ds, grads);
    pin(p), pin(ds);
    if constexpr (!kLate) this->look_at_keys(told_of_keys);
    if ((flags & before & kClear) == 0) {
      if ((flags & kClear) == 0) this->drop_queries(flags, told);
      if constexpr (kLate && kHasDq) drop_keys(before, block - 1);
    }
    float dq[kDqSums];
    if constexpr (kLate && kHasDq) start_dq(dq, block - 1, ready.ds_full);
    begin_products();
    multiply_queries<T, kLate>(dv, p, dout);
    multiply_queries<T, kLate>(dk, ds, q);
    commit_products();
    hand_over_ds(ds, ready.ds_empty);
    if constexpr (kLate && kHasDq) {
      wait_for_products<1>();
      hopper::pin(dq);
      hand_over_dq(dq, block - 1, turn(), ready.dq_empty);
    }
    wait_for_products<0>();
    hopper::pin(dk), hopper::pin(dv);
    if constexpr (kLate && kHasDq)
      if ((before & kClear) == 0) item_keys().bring_again(shared.notes[block % kNotes]);
    end_block(flags);
  }

  // A block no row of which sees the group's keys: of all that is done there is the group's part of
  // dq of the block before, and of d(scores), zeros, with which both groups compute this one's.
  template <bool kLate>
  __device__ __forceinline__ void pass_block(int& flags) {
    const int before = this->template begin_to_pass<kLate>(flags);
    if constexpr (!kLate && kHasDq) item_keys().look_at_own();
    float dq[kDqSums];
    if constexpr (kLate && kHasDq) {
      drop_keys(before, block - 1);
      start_dq(dq, block - 1);
    }
    const uint32_t none[kQueries / 16][4] = {};
    hand_over_ds(none);
    if constexpr (kLate && kHasDq) {
      wait_for_products<0>();
      hopper::pin(dq);
      hand_over_dq(dq, block - 1, turn());
      if ((before & kClear) == 0) item_keys().bring_again(shared.notes[block % kNotes]);
    }
    end_block(flags);
  }

  // One item; its first block's note is there.
  __device__ __forceinline__ void take_item(int flags) {
    static_assert(kDkSums == kDvSums);
    float dk[kDkSums], dv[kDvSums];
    wait(barriers().k_full[item % kKeyStages], item / kKeyStages & 1);
    if (kMayPass<Shape, kDq> && is_unseen(flags)) {
      pass_block<false>(flags);
      clear_sums(dk), clear_sums(dv);
    } else {
      take_block<false>(flags, dk, dv);
    }
    Base::take_blocks(*this, flags, dk, dv);
    if constexpr (kHasDq) drop_keys(flags, block - 1);
    if (kHasDq && (flags & kFinal) != 0)
      this->hand_over_results(dk, dv);
    else
      this->put_results(dk, dv);
  }

  __device__ __forceinline__ void run() { Base::walk(*this); }
};

}  // namespace ringside::hopper::backward_detail
