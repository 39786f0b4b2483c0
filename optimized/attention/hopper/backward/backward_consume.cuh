// A consumer group of the backward kernel: 64 keys of an item, their dk and dv in registers, and
// half the columns of dq.
//
// Scores are computed transposed, [keys][queries], so that weights and d(scores) are the left
// operands of dv and dk as they lie in registers. d(scores) of both groups meet in shared memory
// for dq, which is computed a block late and sent off under the products of dk and dv: the groups
// need not keep step.
#pragma once

#include "optimized/attention/hopper/backward/item_keys.cuh"
#include "optimized/attention/hopper/backward/score_options.cuh"

namespace ringside::hopper::backward_detail {

// One group's walk over the blocks of item after item.
template <typename T, typename Shape, Dq kDq, bool kOptions>
struct Consumer {
  static constexpr int kStages = Shape::kStages, kKeyStages = Shape::kKeyStages;
  static constexpr int kKeyPanel = Shape::kKeyPanel, kSeenStages = Shape::kSeenStages;
  static constexpr int kDqSums = Shape::kDqColumns / 2;  // of a thread
  static constexpr int kDkSums = Shape::kQk / 2, kDvSums = Shape::kV / 2;
  static constexpr bool kHasDq = kDq != Dq::none;

  const ParametersOf<kOptions>& parameters;
  SharedOf<Shape, kOptions>& shared;
  const int group;
  uint32_t thread = threadIdx.x % kGroupThreads;
  uint32_t ds_place = held(place_of_scores(thread)), dq_place = held(place_of_dq<kDq>(thread));
  static constexpr int kOddBit = 31;
  // How many are done; whether final dk and dv of an odd number of items, in the last one's
  // kOddBit.
  uint32_t block = 0, item = 0;
  uint32_t nothing =
      0;  // which the compiler takes for new in every block: see forget_descriptors()

  __device__ __forceinline__ auto& barriers() const { return shared.barriers; }
  __device__ __forceinline__ int stage() const { return block % kStages; }
  __device__ __forceinline__ uint32_t parity() const { return block / kStages % 2; }
  // What the group has handed over before dq of the block before this, odd or even.
  __device__ __forceinline__ uint32_t turn() const { return block - 1 + (item >> kOddBit); }
  __device__ __forceinline__ float scale() const { return parameters.shape.softmax_scale; }

  __device__ __forceinline__ void wait_for_queries() {
    wait(barriers().q_full[stage()], parity());
    forget_places();
  }
  // What the note of the block says of which there is Q.
  __device__ __forceinline__ int read_note() const {
    return __reduce_or_sync(~0u, shared.notes[block % kNotes].flags);
  }
  // Descriptors are made anew for the next block: those that the compiler holds for all blocks of
  // an item do not fit its registers. From this block's note: the next block's scores begin before
  // its own is read.
  __device__ __forceinline__ void forget_descriptors(int flags) {
    nothing = static_cast<uint32_t>(flags) >> 16;
  }

  // What follows from the thread's number is found again in every block: it would not fit, and
  // asking the processor for the number takes long. But for the two places: to find these takes a
  // chain of ten steps, for which tiles would wait.
  static __device__ __forceinline__ uint32_t held(uint32_t place) {
    asm volatile("" : "+r"(place));
    return place;
  }
  __device__ __forceinline__ void forget_places() { asm volatile("" : "+r"(thread)); }

  __device__ __forceinline__ uint64_t keys_of(const uint8_t* tile) const {
    return tile_descriptor(shared_address(tile) + group * kGroupKeys * 128 + nothing);
  }
  __device__ __forceinline__ uint32_t ds_tile(uint32_t of_block) const {
    return shared_address(shared.ds[of_block % 2]);
  }

  __device__ __forceinline__ void start_scores(float (&scores)[32]) const {
    begin_products();
    multiply_rows<T, Shape::kQk>(scores, keys_of(shared.k[item % kKeyStages]), kKeyPanel,
                                 tile_descriptor(shared_address(shared.q[stage()])), kQueryPanel);
    commit_products();
  }

  // To minus delta, where there are no options, which multiply them first.
  __device__ __forceinline__ void start_grads(float (&grads)[32], uint64_t dout) const {
    begin_products();
    if constexpr (kOptions)
      multiply_rows<T, Shape::kV>(grads, keys_of(shared.v), kKeyPanel, dout, kQueryPanel);
    else
      add_rows<T, Shape::kV>(grads, keys_of(shared.v), kKeyPanel, dout, kQueryPanel);
    commit_products();
  }

  // From a group's columns of K to the other's: a panel, or half the 128 bytes of its rows.
  static constexpr int kBytesOfColumns = Shape::kQkPanels > 1 ? kKeyPanel : Shape::kDqColumns * 2;
  // Of final dq, both groups' half rows leave together from the first one's place.
  static constexpr bool kSharesDq = kDq == Dq::store && Shape::kQkPanels == 1;

  // Starts dq of a block, of which both groups have written d(scores).
  __device__ __forceinline__ void start_dq(float (&dq)[kDqSums], uint32_t of_block) const {
    wait(barriers().ds_full[of_block % 2], of_block / 2 % 2);
    show_to_async();  // what both groups have written; here nothing is on its way any more
    begin_products();
    multiply_keys<T, Shape::kKeys>(
        dq, tile_descriptor(ds_tile(of_block)),
        tile_descriptor(shared_address(shared.k[item % kKeyStages]) + group * kBytesOfColumns));
    commit_products();
  }
  // dq of an item of which there may be more: where some were brought, with these.
  __device__ __forceinline__ void put_carried_dq(uint32_t tile, float (&dq)[kDqSums],
                                                 int flags) const {
    const uint32_t sums = tile + place_of_dq<Dq::add>(thread);
    float by = scale();
    if (flags & kCarried) {
      add_carried(sums, dq, by, thread);
      by = 1;
      __syncwarp();  // its lanes write over what others have read
    }
    if (flags & kCarriedOn)
      store_dq<T, Dq::add>(sums, 0, dq, by, thread);
    else
      store_dq<T, Dq::store>(tile + dq_place, 0, dq, by, thread);
  }
  __device__ __forceinline__ void wait_for_place(uint32_t turn) const {
    // Where sums may be brought, the sender says so of the first as well.
    wait(barriers().dq_empty[group], kMayCarry<Shape, kDq> ? turn & 1 : (turn & 1) ^ 1);
  }
  // Puts something where the sender finds it, once that has sent what was there: dq of a block, or
  // an item's final dv.
  template <typename Put>
  __device__ __forceinline__ void hand_over(uint32_t turn, Put put) {
    forget_places();
    wait_for_place(turn);
    put(shared_address(shared.dq[group]));  // which the sender shows to the copy engine
    arrive_as_warp(barriers().dq_full[group], thread);
  }
  // dq of a block, when the products have come.
  __device__ __forceinline__ void hand_over_dq(float (&dq)[kDqSums], uint32_t of_block,
                                               uint32_t turn) {
    arrive_as_warp(barriers().ds_empty[of_block % 2], thread);
    hand_over(turn, [&](uint32_t tile) {
      if constexpr (kMayCarry<Shape, kDq>)
        put_carried_dq(tile, dq, __reduce_or_sync(~0u, shared.notes[of_block % kNotes].flags));
      else if constexpr (kSharesDq)
        store_dq<T, kDq>(shared_address(shared.dq[0]) + dq_place, group * Shape::kDqColumns, dq,
                         scale(), thread);
      else
        store_dq<T, kDq>(tile + dq_place, 0, dq, scale(), thread);
    });
  }
  __device__ __forceinline__ void hand_over_ds(const uint32_t (&ds)[kQueries / 16][4]) {
    if constexpr (!kHasDq) return;
    forget_places();
    wait(barriers().ds_empty[block % 2], block / 2 % 2 ^ 1);
    store_scores(ds_tile(block) + group * kGroupKeys * 128 + ds_place, ds);
    arrive_as_warp(barriers().ds_full[block % 2], thread);
  }

  __device__ __forceinline__ ItemKeys<T, Shape> item_keys() const {
    return {parameters, shared, group, thread, item};
  }
  __device__ __forceinline__ void look_at_keys() const {
    constexpr int kBytes = Shape::kKeyTile / kGroups;
    if constexpr (kHasDq)
      item_keys().template look_at<kBytes>(group * kBytes, shared.keys_found[group]);
  }
  // Before dq of a block that its note says this of.
  __device__ __forceinline__ void drop_keys(int flags, uint32_t of_block) const {
    if ((flags & kClear) != 0) return;
    wait(barriers().ds_full[of_block % 2], of_block / 2 % 2);  // both have looked at keys
    item_keys().drop_not_finite();
  }

  // Whether all of the group's keys are seen.
  __device__ __forceinline__ bool weigh_scores(int flags, float (&scores)[32],
                                               const float2 (&shifts)[8]) const {
    const SeenKeysOfRows& seen = shared.seen[block % kSeenStages];
    const Place place(thread);
    const int key = group * kGroupKeys + place.row;
    bool clear = (flags & kClear) != 0;
    if (!clear)
      clear = __reduce_or_sync(~0u, seen.clear) >> group & 1;  // the compiler sees that warps agree
    if (clear)
      weigh<true>(scores, shifts, seen, key, place.column, scale() * kLog2E);
    else
      weigh<false>(scores, shifts, seen, key, place.column, scale() * kLog2E);
    return clear;
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

  __device__ __forceinline__ void release(uint32_t of_block) const {
    arrive_as_warp(barriers().empty[of_block % kStages], thread);
  }
  __device__ __forceinline__ void release_values(int flags) const {
    if ((flags & kLast) != 0) arrive_as_warp(barriers().v_empty, thread);
  }

  // A block of which there are the queries. kLate: an item's first has passed, and its note is read
  // here; with dq of the block before, which is sent off under the products of dk and dv.
  template <bool kLate>
  __device__ __forceinline__ void take_block(int& flags, float (&dk)[kDkSums],
                                             float (&dv)[kDvSums]) {
    const uint64_t q = tile_descriptor(shared_address(shared.q[stage()]), kQueryPanel);
    const uint64_t dout = tile_descriptor(shared_address(shared.dout[stage()]), kQueryPanel);
    float scores[32], grads[32];
    const auto begin_grads = [&] {
      wait(barriers().dout_full[stage()], parity());
      if constexpr (!kOptions) load_of_pairs(grads, shared.rows[stage()].minus_delta, thread);
      if constexpr (!kOptions) hopper::pin(grads);
    };
    if constexpr (!kLate) begin_grads();
    start_scores(scores);
    if constexpr (kLate)
      begin_grads();
    else
      wait(barriers().v_full, item & 1);
    start_grads(grads, dout);
    const int before = kLate && kHasDq ? flags : kClear;
    if constexpr (kLate) flags = read_note();
    uint32_t p[4][4], ds[4][4];
    if constexpr (kOptions) {
      wait_for_products<0>();
      hopper::pin(scores), hopper::pin(grads);
      release_values(flags);
      differentiate_with_options(scores, grads);
    } else {
      float2 shifts[8];
      load_of_queries(shifts, shared.rows[stage()].shift, thread);
      wait_for_products<1>();
      hopper::pin(scores);
      const bool clear = weigh_scores(flags, scores, shifts);
      wait_for_products<0>();
      hopper::pin(grads);
      release_values(flags);
      differentiate(grads, scores);
      if (!clear) hide_gradients(grads, scores);
    }
    as_left_operand<T>(p, scores);
    as_left_operand<T>(ds, grads);
    pin(p), pin(ds);
    if ((flags & before & kClear) == 0) {
      if ((flags & kClear) == 0)
        drop_not_finite<T, Shape>(shared.q[stage()], shared.dout[stage()], parameters.dropped,
                                  group, thread, is_alone(flags));
      if constexpr (kLate && kHasDq) drop_keys(before, block - 1);
    }
    float dq[kDqSums];
    if constexpr (kLate && kHasDq) start_dq(dq, block - 1);
    begin_products();
    multiply_queries<T, kLate>(dv, p, dout);
    multiply_queries<T, kLate>(dk, ds, q);
    commit_products();
    hand_over_ds(ds);
    if constexpr (kLate && kHasDq) {
      wait_for_products<1>();
      hopper::pin(dq);
      hand_over_dq(dq, block - 1, turn());
    }
    wait_for_products<0>();
    hopper::pin(dk), hopper::pin(dv);
    if constexpr (kLate && kHasDq)
      if ((before & kClear) == 0) item_keys().bring_again(shared.notes[block % kNotes]);
    release(block);
    forget_descriptors(flags);
    ++block;
  }

  template <int R>
  static __device__ __forceinline__ void clear_sums(float (&sums)[R]) {
#pragma unroll
    for (int i = 0; i < R; ++i) sums[i] = 0;
    hopper::pin(sums);
  }
  // Whether a block of that note has no row that sees the group's keys; whether it has none that
  // sees the other's.
  __device__ __forceinline__ bool is_unseen(int flags) const {
    return (flags & kUnseen << group) != 0;
  }
  __device__ __forceinline__ bool is_alone(int flags) const {
    return kMayPass<Shape, kDq> && (flags & kUnseen << (1 - group)) != 0;
  }
  // Such a block: of all that is done there is the group's part of dq of the block before, and of
  // d(scores), zeros, with which both groups compute this one's. First what is waited for, though
  // nothing of it is read: nobody brings more while it is on its way. What the note before says.
  template <bool kLate>
  __device__ __forceinline__ int begin_to_pass(int& flags) const {
    wait(barriers().dout_full[stage()], parity());
    if constexpr (!kLate) wait(barriers().v_full, item & 1);
    const int before = kLate && kHasDq ? flags : kClear;
    if constexpr (kLate) flags = read_note();
    release_values(flags);
    return before;
  }
  template <bool kLate>
  __device__ __forceinline__ void pass_block(int& flags) {
    const int before = begin_to_pass<kLate>(flags);
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
    release(block);
    forget_descriptors(flags);
    ++block;
  }

  // What comes behind an item's first block; of a group of this kind, or of one that takes blocks
  // in its own way.
  template <typename Group>
  static __device__ __forceinline__ void take_blocks(Group& group, int& flags, float (&dk)[kDkSums],
                                                     float (&dv)[kDvSums]) {
    while ((flags & kLast) == 0) {
      group.wait_for_queries();
      if (kMayPass<Shape, kDq> && (flags & kNextUnseen << group.group) != 0)
        group.template pass_block<true>(flags);
      else
        group.template take_block<true>(flags, dk, dv);
    }
  }

  // One item; its first block's note is there.
  __device__ __forceinline__ void take_item(int flags) {
    static_assert(kDkSums == kDvSums);
    float dk[kDkSums], dv[kDvSums];
    wait(barriers().k_full[item % kKeyStages], item / kKeyStages & 1);
    look_at_keys();
    if (kMayPass<Shape, kDq> && is_unseen(flags)) {
      pass_block<false>(flags);
      clear_sums(dk), clear_sums(dv);
    } else {
      take_block<false>(flags, dk, dv);
    }
    take_blocks(*this, flags, dk, dv);
    if constexpr (kHasDq) drop_keys(flags, block - 1);
    if (kHasDq && (flags & kFinal) != 0)
      hand_over_results(dk, dv);
    else
      put_results(dk, dv);
    if (kHasDq && (flags & kFinal) != 0) item ^= 1u << kOddBit;
  }

  // What is left of an item: dq of its last block, dk and dv. Final dv are sent off like dq, dk
  // from where K was, of which nobody reads any more behind dq.
  __device__ __forceinline__ void hand_over_results(const float (&dk)[kDkSums],
                                                    const float (&dv)[kDvSums]) {
    float dq[kDqSums];
    start_dq(dq, block - 1);
    hand_over(turn(), [&](uint32_t tile) {
      stage_keys<T, Shape::kVPanels, kQueryPanel>(tile, dv, 0, 1, thread);
    });
    wait_for_products<0>();
    hopper::pin(dq);
    arrive_as_warp(barriers().k_read, thread);
    hand_over_dq(dq, block - 1, turn() + 1);
    wait(barriers().k_read, item >> kOddBit);
    stage_keys<T, Shape::kQkPanels, kKeyPanel>(
        shared_address(shared.k[item % kKeyStages]) + group * kGroupKeys * 128, dk, 0, scale(),
        thread);
    arrive_as_warp(barriers().dk_full[group], thread);
  }
  __device__ __forceinline__ void put_results(const float (&dk)[kDkSums],
                                              const float (&dv)[kDvSums]) {
    const BlockNote note = shared.notes[(block - 1) % kNotes];
    if constexpr (kHasDq) {
      float dq[kDqSums];
      start_dq(dq, block - 1);
      wait_for_products<0>();
      hopper::pin(dq);
      hand_over_dq(dq, block - 1, turn());
    }
    // Where others' dk leave from where K was, the sender says that it is empty, behind dq.
    if (!kHasDq || !sends_keys(parameters))
      arrive_as_warp(barriers().k_empty[item % kKeyStages], thread);
    const AttentionShape& shape = parameters.shape;
    const int first_key = group * kGroupKeys;
    put_keys<T>(parameters, parameters.dk, note, first_key, shape.head_dim_qk, scale(), dk, thread);
    put_keys<T>(parameters, parameters.dv, note, first_key, shape.head_dim_v, 1, dv, thread);
  }

  // Item after item; of a group of this kind, or of one that takes them in its own way.
  template <typename Group>
  static __device__ __forceinline__ void walk(Group& group) {
    for (;; ++group.item) {
      group.wait_for_queries();
      const int flags = group.read_note();
      if ((flags & kStop) != 0) break;
      group.take_item(flags);
    }
    group.say_stop();
  }
  __device__ __forceinline__ void run() { walk(*this); }
  __device__ __forceinline__ void say_stop() {
    if constexpr (!kHasDq) return;
    // The sender finds the note to stop. Not before all warps have left their part of the last dq:
    // a faster one would count in a slower one's place.
    ++block;  // as if one more had been
    wait_for_place(turn());
    arrive_as_warp(barriers().dq_full[group], thread);
  }
};

}  // namespace ringside::hopper::backward_detail
