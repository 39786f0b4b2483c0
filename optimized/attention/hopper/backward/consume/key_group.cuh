// What consumer groups of the backward kernel that have 64 keys of an item each, and half the
// columns of dq, have in common: places, what is waited for and handed over, and the walk over
// items.
#pragma once

#include "optimized/attention/hopper/backward/consume/item_keys.cuh"
#include "optimized/attention/hopper/backward/consume/results.cuh"

namespace ringside::hopper::backward_detail {

template <typename T, typename Shape, Dq kDq, Options kOptions>
struct KeyGroup {
  static constexpr int kStages = Shape::kStages, kKeyStages = Shape::kKeyStages;
  static constexpr int kKeyPanel = Shape::kKeyPanel, kSeenStages = Shape::kSeenStages;
  static constexpr int kDqSums = Shape::kDqColumns / 2;  // of a thread
  static constexpr int kDkSums = Shape::kQk / 2, kDvSums = Shape::kV / 2;
  static constexpr bool kHasDq = kDq != Dq::none;
  // Of all of them at a time, positions and more are asked for, for which there must be registers.
  static constexpr bool kAllOptions = kOptions == Options::all;

  const ParametersOf<kOptions>& parameters;
  SharedOf<Shape, kOptions>& shared;
  const int group;
  uint32_t thread = threadIdx.x % kGroupThreads;
  uint32_t ds_place = held(place_of_scores(thread)), dq_place = held(place_of_dq<kDq>(thread));
  // How many are done.
  uint32_t block = 0, item = 0;
  uint32_t nothing =
      0;  // which the compiler takes for new in every block: see forget_descriptors()

  __device__ __forceinline__ auto& barriers() const { return shared.barriers; }
  __device__ __forceinline__ int stage() const { return block % kStages; }
  __device__ __forceinline__ uint32_t parity() const { return block / kStages % 2; }
  // How many dq the group has handed over before those of the block before this.
  __device__ __forceinline__ uint32_t turn() const { return block - 1; }
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

  // From a group's columns of K to the other's: a panel, or half the 128 bytes of its rows.
  static constexpr int kBytesOfColumns = Shape::kQkPanels > 1 ? kKeyPanel : Shape::kDqColumns * 2;
  // Of final dq, both groups' half rows leave together from the first one's place.
  static constexpr bool kSharesDq = kDq == Dq::store && Shape::kQkPanels == 1;

  // What a block will wait for, asked for early: the answers take time while products keep shared
  // memory busy. Whether both groups have written d(scores) of the block before; whether there is
  // room for this one's, and for dq.
  struct Ready {
    bool ds_full = false, ds_empty = false, dq_empty = false;
  };
  __device__ __forceinline__ Ready ask_ahead() const {
    const uint32_t before = block - 1;
    return {has_ended(barriers().ds_full[before % 2], before / 2 % 2),
            has_ended(barriers().ds_empty[block % 2], block / 2 % 2 ^ 1),
            has_ended(barriers().dq_empty[group], parity_of_place(turn()))};
  }

  // Starts dq of a block, of which both groups have written d(scores).
  __device__ __forceinline__ void start_dq(float (&dq)[kDqSums], uint32_t of_block,
                                           bool is_full = false) const {
    if (!is_full) wait(barriers().ds_full[of_block % 2], of_block / 2 % 2);
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
  __device__ __forceinline__ uint32_t parity_of_place(uint32_t turn) const {
    // Where sums may be brought, the sender says so of the first as well.
    return kMayCarry<Shape, kDq> ? turn & 1 : (turn & 1) ^ 1;
  }
  __device__ __forceinline__ void wait_for_place(uint32_t turn) const {
    wait(barriers().dq_empty[group], parity_of_place(turn));
  }
  // Puts dq of a block where the sender finds them, once that has sent what was there.
  template <typename Put>
  __device__ __forceinline__ void hand_over(uint32_t turn, Put put, bool is_empty = false) {
    forget_places();
    if (!is_empty) wait_for_place(turn);
    put(shared_address(shared.dq[group]));  // which the sender shows to the copy engine
    arrive_as_warp(barriers().dq_full[group], thread);
  }
  // dq of a block, when the products have come.
  __device__ __forceinline__ void hand_over_dq(float (&dq)[kDqSums], uint32_t of_block,
                                               uint32_t turn, bool is_empty = false) {
    arrive_as_warp(barriers().ds_empty[of_block % 2], thread);
    const auto put = [&](uint32_t tile) {
      if constexpr (kMayCarry<Shape, kDq>)
        put_carried_dq(tile, dq, __reduce_or_sync(~0u, shared.notes[of_block % kNotes].flags));
      else if constexpr (kDq == Dq::add_fragments)
        store_fragments(tile + dq_place, dq);
      else if constexpr (kSharesDq)
        store_dq<T, kDq>(shared_address(shared.dq[0]) + dq_place, group * Shape::kDqColumns, dq,
                         scale(), thread);
      else
        store_dq<T, kDq>(tile + dq_place, 0, dq, scale(), thread);
    };
    hand_over(turn, put, is_empty);
  }
  __device__ __forceinline__ void hand_over_ds(const uint32_t (&ds)[kQueries / 16][4],
                                               bool is_empty = false) {
    if constexpr (!kHasDq) return;
    forget_places();
    if (!is_empty) wait(barriers().ds_empty[block % 2], block / 2 % 2 ^ 1);
    store_scores(ds_tile(block) + group * kGroupKeys * 128 + ds_place, ds);
    arrive_as_warp(barriers().ds_full[block % 2], thread);
  }

  __device__ __forceinline__ ItemKeys<T, Shape> item_keys() const {
    return {parameters, shared, group, thread, item};
  }
  // told: of a block's scores.
  __device__ __forceinline__ void look_at_keys(float told) const {
    if (kHasDq && !says_finite(told)) item_keys().look_at_own();
  }
  // Of the first scores, what tells of the keys from which they come, too.
  static __device__ __forceinline__ float told_of_keys(float told, const float (&scores)[32]) {
    return told + scores[2];
  }
  // Of queries that do not see all keys; told: of their scores and d(weights).
  __device__ __forceinline__ void drop_queries(int flags, float told) const {
    if (says_finite(told)) return;
    call_drop_from<T, Shape, kAllOptions>(shared.q[stage()], shared.dout[stage()], group, thread,
                                          is_alone(flags), parameters.dropped);
  }
  // Before dq of a block that its note says this of.
  __device__ __forceinline__ void drop_keys(int flags, uint32_t of_block) const {
    if ((flags & kClear) != 0) return;
    wait(barriers().ds_full[of_block % 2], of_block / 2 % 2);  // both have looked at keys
    item_keys().drop_not_finite();
  }

  // What multiplies scores, to the base of exponents: kept, as to ask for it takes long.
  __device__ __forceinline__ float scale_log2() const {
    float by = scale() * kLog2E;
    asm volatile("" : "+f"(by));
    return by;
  }
  // A block's scores become weights, also of pairs that are not seen. by: scale_log2(). told: of
  // the scores, of a block that is not clear.
  __device__ __forceinline__ void weigh_scores(int flags, float (&scores)[32],
                                               const float2 (&shifts)[8], float by,
                                               float& told) const {
    if ((flags & kClear) == 0) told = told_by(scores);
    weigh(scores, shifts, by);
  }
  // Weights and gradients of such pairs become 0; told: of d(weights), likewise. 0 times what is
  // not finite is NaN.
  __device__ __forceinline__ void hide_unseen(int flags, float (&grads)[32], float (&weights)[32],
                                              float& told) const {
    if ((flags & kClear) != 0) return;
    told += told_by(grads);
    const Place place(thread);
    hide<8>(weights, grads, shared.seen[block % kSeenStages], group * kGroupKeys + place.row,
            place.column);
  }

  // Where its rows were, more may come, or final dv.
  __device__ __forceinline__ void release(uint32_t of_block, int flags) const {
    arrive_as_warp(leaves_rows<Shape, kDq>(flags) ? barriers().rows_read
                                                  : barriers().empty[of_block % kStages],
                   thread);
  }
  // Of a block of which nothing is under way any more, with that note.
  __device__ __forceinline__ void end_block(int flags) {
    release(block, flags);
    forget_descriptors(flags);
    ++block;
  }
  __device__ __forceinline__ void release_values(int flags) const {
    if ((flags & kLast) != 0) arrive_as_warp(barriers().v_empty, thread);
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
  // Of such a block, what is waited for, though nothing of it is read: nobody brings more while it
  // is on its way. What the note before says.
  template <bool kLate>
  __device__ __forceinline__ int begin_to_pass(int& flags) const {
    wait(barriers().dout_full[stage()], parity());
    if constexpr (!kLate) wait(barriers().v_full, item & 1);
    const int before = kLate && kHasDq ? flags : kClear;
    if constexpr (kLate) flags = read_note();
    release_values(flags);
    return before;
  }
  // What comes behind an item's first block.
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

  // What is left of an item: dq of its last block, dk and dv. Final dv are sent off from where the
  // block's dout, and the second group's from where its Q was, dk from where K was, of which nobody
  // reads any more behind dq.
  __device__ __forceinline__ void hand_over_results(const float (&dk)[kDkSums],
                                                    const float (&dv)[kDvSums]) {
    float dq[kDqSums];
    start_dq(dq, block - 1);
    forget_places();
    wait(barriers().rows_read, item & 1);
    stage_keys<T, Shape::kVPanels, kQueryPanel>(
        shared_address(place_of_dv(shared, group, (block - 1) % kStages)), dv, 0, 1, thread);
    arrive_as_warp(barriers().dv_full[(block - 1) % kStages], thread);
    wait_for_products<0>();
    hopper::pin(dq);
    arrive_as_warp(barriers().k_read, thread);
    wait(barriers().k_read, item & 1);
    stage_keys<T, Shape::kQkPanels, kKeyPanel>(
        shared_address(shared.k[item % kKeyStages]) + group * kGroupKeys * 128, dk, 0, scale(),
        thread);
    arrive_as_warp(barriers().dk_full[item % kKeyStages][group], thread);
    hand_over_dq(dq, block - 1, turn());
  }
  // Items that leave none count, too, but for dv_full.
  __device__ __forceinline__ void pass_final_results() const {
    const int stage = item % kKeyStages;
    for (Barrier* barrier :
         {&barriers().rows_read, &barriers().k_read, &barriers().dk_full[stage][group]})
      arrive_as_warp(*barrier, thread);
  }
  // Before the next item, for which a warp that is ahead would count in another's place.
  __device__ __forceinline__ void wait_until_all_pass() const {
    for (Barrier* barrier : {&barriers().rows_read, &barriers().k_read}) wait(*barrier, item & 1);
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
    else
      pass_final_results();
    const AttentionShape& shape = parameters.shape;
    const int first_key = group * kGroupKeys;
    put_keys<T>(parameters, parameters.dk, note, first_key, shape.head_dim_qk, scale(), dk, thread);
    put_keys<T>(parameters, parameters.dv, note, first_key, shape.head_dim_v, 1, dv, thread);
    if (kHasDq && sends_keys(parameters)) wait_until_all_pass();
  }

  // Item after item.
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
