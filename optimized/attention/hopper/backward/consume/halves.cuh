// A consumer group of the backward kernel whose registers hold dk and dv of 64 keys, and beside
// them scores of half a block's queries: the second half's are computed, and weighed, beside the
// first one's part of dk and dv. dq leave in two rounds: of the panel in the middle, of which both
// groups have half the columns, while dk and dv are computed; of a panel of the group's own behind,
// when weights need no registers.
#pragma once

#include "optimized/attention/hopper/backward/consume/key_group.cuh"

namespace ringside::hopper::backward_detail {

// One group's walk over the blocks of item after item.
template <typename T, typename Shape, Dq kDq>
struct HalvesConsumer : KeyGroup<T, Shape, kDq, Options::none> {
  using Base = KeyGroup<T, Shape, kDq, Options::none>;
  using Base::barriers, Base::stage, Base::parity, Base::scale, Base::keys_of, Base::ds_tile;
  using Base::block, Base::item, Base::group, Base::thread, Base::shared, Base::parameters;
  using Base::ds_place;
  using Base::forget_places, Base::read_note, Base::wait_for_queries, Base::drop_keys;
  using Base::kDkSums, Base::kDvSums, Base::kHasDq, Base::kKeyPanel, Base::dq_place;
  static constexpr int kHalf = kQueries / 2;

  uint32_t turn = 0;  // how often the group has left something in its place

  // Of 32 queries from this half on, [64 keys][32].
  template <int kDepth>
  __device__ __forceinline__ void start_rows(float (&d)[16], const uint8_t* keys,
                                             const uint8_t* queries, int half) const {
    begin_products();
    multiply_rows<T, kDepth>(d, keys_of(keys), kKeyPanel,
                             tile_descriptor(shared_address(queries) + half * kHalf * 128),
                             kQueryPanel);
    commit_products();
  }
  __device__ __forceinline__ void start_scores(float (&scores)[16], int half) const {
    start_rows<Shape::kQk>(scores, shared.k[0], shared.q[stage()], half);
  }
  __device__ __forceinline__ void start_grads(float (&grads)[16], int half) const {
    start_rows<Shape::kV>(grads, shared.v, shared.dout[stage()], half);
  }

  // Scores of a half become weights. Whether all of the group's keys are seen.
  __device__ __forceinline__ bool weigh_half(int flags, float (&scores)[16], int half) const {
    float2 shifts[4];
    load_of_queries(shifts, shared.rows[stage()].shift, thread, half * kHalf);
    const SeenKeysOfRows& seen = shared.seen[block % Shape::kSeenStages];
    const Place place(thread);
    const int key = group * kGroupKeys + place.row, query = half * kHalf + place.column;
    bool clear = (flags & kClear) != 0;
    if (!clear) clear = __reduce_or_sync(~0u, seen.clear) >> group & 1;
    if (clear)
      weigh<true>(scores, shifts, seen, key, query, scale() * kLog2E);
    else
      weigh<false>(scores, shifts, seen, key, query, scale() * kLog2E);
    return clear;
  }
  __device__ __forceinline__ void differentiate_half(float (&grads)[16], const float (&weights)[16],
                                                     bool clear, int half) const {
    float2 minus_deltas[4];
    load_of_queries(minus_deltas, shared.rows[stage()].minus_delta, thread, half * kHalf);
    differentiate(grads, weights, minus_deltas);
    if (!clear) hide_gradients(grads, weights);
  }

  // Puts something where the sender finds it, once that has sent what was there.
  template <typename Put>
  __device__ __forceinline__ void hand_over(Put put) {
    forget_places();
    wait(barriers().dq_empty[group], (turn & 1) ^ 1);
    put(shared_address(shared.dq[group]));  // which the sender shows to the copy engine
    arrive_as_warp(barriers().dq_full[group], thread);
    ++turn;
  }

  // A round of dq of a block, of which both groups have written d(scores).
  template <int R>
  __device__ __forceinline__ void start_dq(float (&dq)[R], uint32_t of_block) const {
    constexpr int kRound = R == 16 ? 0 : 1;
    const int column = Shape::dq_columns(group, kRound).first;
    const uint32_t tile = shared_address(shared.k[0]) + column / kPanelColumns * kKeyPanel +
                          column % kPanelColumns * 2;
    begin_products();
    multiply_keys<T, Shape::kKeys>(dq, tile_descriptor(ds_tile(of_block)), tile_descriptor(tile));
    commit_products();
  }
  __device__ __forceinline__ void wait_for_ds(uint32_t of_block) const {
    wait(barriers().ds_full[of_block % 2], of_block / 2 % 2);
    show_to_async();  // what both groups have written; here nothing is on its way any more
  }
  template <int R>
  __device__ __forceinline__ void hand_over_dq(const float (&dq)[R]) {
    constexpr bool kShared = kDq == Dq::store && R == 16;  // a panel's halves, in one place
    hand_over([&](uint32_t tile) {
      if constexpr (kShared)
        store_dq<T, kDq>(shared_address(shared.dq[0]) + dq_place, group * kHalfPanel, dq, scale(),
                         thread);
      else
        store_dq<T, kDq>(tile + dq_place, 0, dq, scale(), thread);
    });
  }
  // The rounds of dq, where nothing is under way beside them.
  __device__ __forceinline__ void finish_first_dq(uint32_t of_block) {
    float dq[16];
    wait_for_ds(of_block);
    start_dq(dq, of_block);
    wait_for_products<0>();
    hopper::pin(dq);
    hand_over_dq(dq);
  }
  __device__ __forceinline__ void finish_dq(uint32_t of_block) {
    float dq[32];
    start_dq(dq, of_block);
    wait_for_products<0>();
    hopper::pin(dq);
    arrive_as_warp(barriers().ds_empty[of_block % 2], thread);
    hand_over_dq(dq);
  }

  // A half's d(scores), for both groups' dq.
  __device__ __forceinline__ void put_ds(const uint32_t (&ds)[2][4], int half) {
    if constexpr (!kHasDq) return;
    forget_places();
    if (half == 0) wait(barriers().ds_empty[block % 2], block / 2 % 2 ^ 1);
    store_scores(ds_tile(block) + group * kGroupKeys * 128 + ds_place, ds, half * 2);
    if (half == 1) arrive_as_warp(barriers().ds_full[block % 2], thread);
  }
  // What a block's queries of one half are to the group's keys.
  struct Half {
    uint32_t p[2][4], ds[2][4];
  };
  __device__ __forceinline__ void multiply_half(float (&dk)[kDkSums], float (&dv)[kDvSums],
                                                const Half& of, int half) const {
    const int rows = half * kHalf * 128;  // bytes
    multiply_queries<T>(dv, of.p,
                        tile_descriptor(shared_address(shared.dout[stage()]) + rows, kQueryPanel));
    multiply_queries<T>(dk, of.ds,
                        tile_descriptor(shared_address(shared.q[stage()]) + rows, kQueryPanel));
    commit_products();
  }
  // When there are weights and gradients.
  __device__ __forceinline__ void finish_half(Half& of, int flags, float (&grads)[16],
                                              const float (&weights)[16], bool clear, int half,
                                              float told) {
    if ((flags & kClear) == 0) told += told_by(grads);
    differentiate_half(grads, weights, clear, half);
    as_left_operand<T>(of.p, weights);
    as_left_operand<T>(of.ds, grads);
    pin(of.p), pin(of.ds);
    if ((flags & kClear) == 0 && !says_finite(told)) {
      const QueryTiles<T, Shape, kHalf> tiles{shared.q[stage()], shared.dout[stage()],
                                              half * kHalf};
      drop_from<T, Shape, kHalf, false>(tiles, group, thread, this->is_alone(flags),
                                        parameters.dropped);
    }
    put_ds(of.ds, half);
  }

  // A block of which there are the queries. kLate: an item's first has passed, and its note is read
  // here; with dq of the block before.
  template <bool kLate>
  __device__ __forceinline__ void take_block(int& flags, float (&dk)[kDkSums],
                                             float (&dv)[kDvSums]) {
    float scores[16], grads[16];
    Half of;
    start_scores(scores, 0);
    wait(barriers().dout_full[stage()], parity());
    if constexpr (!kLate) wait(barriers().v_full, item & 1);
    start_grads(grads, 0);
    const int before = kLate && kHasDq ? flags : kClear;
    if constexpr (kLate) flags = read_note();
    wait_for_products<1>();
    hopper::pin(scores);
    float told = told_by(scores);
    const float told_of_keys = told + scores[2];
    bool clear = weigh_half(flags, scores, 0);
    wait_for_products<0>();
    hopper::pin(grads);
    if constexpr (!kLate) this->look_at_keys(told_of_keys);
    finish_half(of, flags, grads, scores, clear, 0, told);
    start_scores(scores, 1);
    begin_products();
    multiply_half(dk, dv, of, 0);
    wait_for_products<1>();
    hopper::pin(scores);
    told = told_by(scores);
    clear = weigh_half(flags, scores, 1);
    wait_for_products<0>();
    hopper::pin(dk), hopper::pin(dv);
    start_grads(grads, 1);
    wait_for_products<0>();
    hopper::pin(grads);
    this->release_values(flags);
    finish_half(of, flags, grads, scores, clear, 1, told);
    float dq[16];
    if constexpr (kLate && kHasDq) {
      drop_keys(before, block - 1);
      wait_for_ds(block - 1);
      start_dq(dq, block - 1);
    }
    begin_products();
    multiply_half(dk, dv, of, 1);
    if constexpr (kLate && kHasDq) {
      wait_for_products<1>();
      hopper::pin(dq);
      hand_over_dq(dq);
    }
    wait_for_products<0>();
    hopper::pin(dk), hopper::pin(dv);
    if constexpr (kLate && kHasDq) {
      finish_dq(block - 1);
      if ((before & kClear) == 0) this->item_keys().bring_again(shared.notes[block % kNotes]);
    }
    this->end_block(flags);
  }

  // A block no row of which sees the group's keys, as the other consumer has it.
  template <bool kLate>
  __device__ __forceinline__ void pass_block(int& flags) {
    const int before = this->template begin_to_pass<kLate>(flags);
    if constexpr (!kLate && kHasDq) this->item_keys().look_at_own();
    const uint32_t none[2][4] = {};
    put_ds(none, 0), put_ds(none, 1);
    if constexpr (kLate && kHasDq) {
      drop_keys(before, block - 1);
      finish_first_dq(block - 1);
      finish_dq(block - 1);
      if ((before & kClear) == 0) this->item_keys().bring_again(shared.notes[block % kNotes]);
    }
    this->end_block(flags);
  }

  // One item; its first block's note is there.
  __device__ __forceinline__ void take_item(int flags) {
    float dk[kDkSums], dv[kDvSums];
    this->clear_sums(dk), this->clear_sums(dv);
    wait(barriers().k_full[0], item & 1);
    if (this->is_unseen(flags))
      pass_block<false>(flags);
    else
      take_block<false>(flags, dk, dv);
    Base::take_blocks(*this, flags, dk, dv);
    if constexpr (kHasDq) {
      drop_keys(flags, block - 1);
      finish_first_dq(block - 1);
      finish_dq(block - 1);
    }
    arrive_as_warp(barriers().k_empty[0], thread);
    if (kHasDq && (flags & kFinal) != 0)
      hand_over_results(dk, dv);
    else
      put_results(dk, dv);
  }

  // Two panels at a time, as the place for dq holds them.
  __device__ __forceinline__ void hand_over_results(const float (&dk)[kDkSums],
                                                    const float (&dv)[kDvSums]) {
    hand_over([&](uint32_t tile) { stage_keys<T, 2, kQueryPanel>(tile, dv, 0, 1, thread); });
    hand_over([&](uint32_t tile) { stage_keys<T, 2, kQueryPanel>(tile, dk, 0, scale(), thread); });
    hand_over([&](uint32_t tile) { stage_keys<T, 1, kQueryPanel>(tile, dk, 2, scale(), thread); });
  }
  __device__ __forceinline__ void put_results(const float (&dk)[kDkSums],
                                              const float (&dv)[kDvSums]) {
    const BlockNote note = shared.notes[(block - 1) % kNotes];
    const AttentionShape& shape = parameters.shape;
    const int first_key = group * kGroupKeys;
    put_keys<T>(parameters, parameters.dk, note, first_key, shape.head_dim_qk, scale(), dk, thread);
    put_keys<T>(parameters, parameters.dv, note, first_key, shape.head_dim_v, 1, dv, thread);
  }

  __device__ __forceinline__ void run() { Base::walk(*this); }
  __device__ __forceinline__ void say_stop() {
    if constexpr (!kHasDq) return;
    // The sender finds the note to stop. Not before all warps have left their part of what was
    // last: a faster one would count in a slower one's place.
    wait(barriers().dq_empty[group], (turn & 1) ^ 1);
    arrive_as_warp(barriers().dq_full[group], thread);
  }
};

}  // namespace ringside::hopper::backward_detail
