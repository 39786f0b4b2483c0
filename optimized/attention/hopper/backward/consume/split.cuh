// A consumer group of the backward kernel where head dimensions are so large that one group cannot
// hold dk and dv of 64 keys (256): both groups have the same keys, the first owns dk, the second
// dv.
//
// Every product is one group's: the second computes scores and their weights, of which it needs no
// more for dv; it leaves them for the first in shared memory, as its registers hold them. The first
// computes d(weights), and with the weights d(scores), from which dk follows in its registers. dq,
// whose columns are dealt to both by panels of 64, is computed a block late, as elsewhere.
#pragma once

#include "optimized/attention/hopper/backward/consume/item_keys.cuh"

namespace ringside::hopper::backward_detail {

// One group's walk over the blocks of item after item.
template <typename T, typename Shape, Dq kDq, int kGroup>
struct SplitConsumer {
  static constexpr bool kHasDq = kDq != Dq::none, kOwnsDk = kGroup == 0;
  static constexpr int kStages = Shape::kStages, kKeyStages = Shape::kKeyStages;
  static constexpr int kKeyPanel = Shape::kKeyPanel;
  static constexpr int kColumns = kOwnsDk ? Shape::kQk : Shape::kV, kSums = kColumns / 2;
  static constexpr int kFirstPanel = Shape::first_panel(kGroup);  // of dq
  static constexpr int kEndPanel = Shape::end_panel(kGroup);

  const Parameters& parameters;
  SplitShared<Shape>& shared;
  uint32_t thread = threadIdx.x % kGroupThreads;
  uint32_t block = 0, item = 0, turn = 0;  // how many are done; turns: of the place for results
  uint32_t nothing = 0;  // which the compiler takes for new in every block: see wait_for_note()

  __device__ __forceinline__ auto& barriers() const { return shared.barriers; }
  __device__ __forceinline__ int stage() const { return block % kStages; }
  __device__ __forceinline__ int dout_stage() const { return block % Shape::kDoutStages; }
  __device__ __forceinline__ float scale() const { return parameters.shape.softmax_scale; }

  // What the note of the coming block says; there is Q then, too. Descriptors and what follows from
  // the thread's number are made anew from here on, as in the other kernel.
  __device__ __forceinline__ int wait_for_note() {
    wait(barriers().q_full[stage()], block / kStages % 2);
    const int flags = __reduce_or_sync(~0u, shared.notes[block % kNotes].flags);
    nothing = static_cast<uint32_t>(flags) >> 16;
    forget_places();
    return flags;
  }
  __device__ __forceinline__ void forget_places() { asm volatile("" : "+r"(thread)); }

  __device__ __forceinline__ uint64_t tile_of(const uint8_t* tile, uint32_t panel = 16) const {
    return tile_descriptor(shared_address(tile) + nothing, panel);
  }
  __device__ __forceinline__ void wait_for_rows() const {
    wait(barriers().rows_full[stage()], block / kStages % 2);
  }
  __device__ __forceinline__ void wait_for_dout() const {
    wait(barriers().dout_full[dout_stage()], block / Shape::kDoutStages % 2);
  }

  // d [64 keys][64 queries] = keys . queries^T.
  template <int kDepth>
  __device__ __forceinline__ void start_rows(float (&d)[32], const uint8_t* keys,
                                             const uint8_t* queries) const {
    begin_products();
    multiply_rows<T, kDepth>(d, tile_of(keys), kKeyPanel, tile_of(queries), kQueryPanel);
    commit_products();
  }

  // Puts something where the sender finds it, once that has sent what was there.
  template <typename Put>
  __device__ __forceinline__ void hand_over(Put put) {
    forget_places();
    wait(barriers().dq_empty[kGroup], (turn & 1) ^ 1);
    put(shared_address(shared.dq[kGroup]));
    show_to_async();
    arrive_as_warp(barriers().dq_full[kGroup]);
    ++turn;
  }

  // A panel of dq of a block of which d(scores) are written.
  __device__ __forceinline__ void start_dq(float (&dq)[32], uint32_t of_block, int panel) const {
    begin_products();
    multiply_keys<T, Shape::kKeys>(dq, tile_of(shared.ds[of_block % 2]),
                                   tile_of(shared.k[item % kKeyStages] + panel * kKeyPanel));
    commit_products();
  }
  __device__ __forceinline__ void hand_over_dq(const float (&dq)[32]) {
    hand_over([&](uint32_t tile) {
      store_dq<T, kDq>(tile + place_of_dq<kDq>(thread), 0, dq, scale(), thread);
    });
  }
  __device__ __forceinline__ void wait_for_ds(uint32_t of_block) const {
    wait(barriers().ds_full[of_block % 2], of_block / 2 % 2);
  }
  // The group's panels of dq from `panel` on; nothing else is under way.
  __device__ __forceinline__ void finish_dq(uint32_t of_block, int first_panel) {
#pragma unroll
    for (int panel = first_panel; panel < kEndPanel; ++panel) {
      float dq[32];
      start_dq(dq, of_block, panel);
      wait_for_products<0>();
      hopper::pin(dq);
      if (panel + 1 == kEndPanel) arrive_as_warp(barriers().ds_empty[of_block % 2]);
      hand_over_dq(dq);
    }
  }

  __device__ __forceinline__ ItemKeys<T, Shape> item_keys() const {
    return {parameters, shared, kGroup, thread, item};
  }
  __device__ __forceinline__ void look_at_keys() const {
#pragma unroll 1
    for (int panel = kFirstPanel; panel < kEndPanel; ++panel)
      item_keys().template look_at<kKeyPanel>(panel * kKeyPanel, shared.keys_found[panel]);
  }

  // Whether every row sees all of the item's keys.
  __device__ __forceinline__ bool is_clear() const {
    return __reduce_or_sync(~0u, shared.seen[block % Shape::kSeenStages].clear) & 1;
  }

  // Weights of a block for dv, which the other group is left as well.
  __device__ __forceinline__ void compute_weights(uint32_t (&p)[4][4]) const {
    float scores[32];
    start_rows<Shape::kQk>(scores, shared.k[item % kKeyStages], shared.q[stage()]);
    wait_for_rows();
    float2 shifts[8];
    load_of_queries(shifts, shared.rows[stage()].shift, thread);
    wait_for_products<0>();
    hopper::pin(scores);
    const SeenKeysOfRows& seen = shared.seen[block % Shape::kSeenStages];
    const Place place(thread);
    if (is_clear())
      weigh<true>(scores, shifts, seen, place.row, place.column, scale() * kLog2E);
    else
      weigh<false>(scores, shifts, seen, place.row, place.column, scale() * kLog2E);
    wait(barriers().weights_empty, (block & 1) ^ 1);
#pragma unroll
    for (int n = 0; n < 8; ++n)
      shared.weights[n][thread] =
          float4{scores[4 * n], scores[4 * n + 1], scores[4 * n + 2], scores[4 * n + 3]};
    arrive_as_warp(barriers().weights_full);
    as_left_operand<T>(p, scores);
    pin(p);
    wait_for_dout();
  }

  // d(scores) of a block for dk, and for dq of both groups.
  __device__ __forceinline__ void compute_gradients(uint32_t (&ds)[4][4]) const {
    float grads[32];
    wait_for_dout();
    start_rows<Shape::kV>(grads, shared.v, shared.dout[dout_stage()]);
    wait_for_rows();
    float2 minus_deltas[8];
    load_of_queries(minus_deltas, shared.rows[stage()].minus_delta, thread);
    wait_for_products<0>();
    hopper::pin(grads);
    wait(barriers().weights_full, block & 1);
    const bool clear = is_clear();
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float4 four = shared.weights[n][thread];
      const float weights[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& grad = grads[4 * n + i];
        grad = weights[i] * (grad + (i % 2 == 0 ? minus_deltas[n].x : minus_deltas[n].y));
        if (!clear && __float_as_int(weights[i]) < 0) grad = 0;  // as in hide_gradients()
      }
    }
    arrive_as_warp(barriers().weights_empty);
    as_left_operand<T>(ds, grads);
    pin(ds);
  }

  __device__ __forceinline__ void hand_over_ds(const uint32_t (&ds)[4][4]) {
    forget_places();
    wait(barriers().ds_empty[block % 2], block / 2 % 2 ^ 1);
    store_scores(shared_address(shared.ds[block % 2]) + place_of_scores(thread), ds);
    show_to_async();
    arrive_as_warp(barriers().ds_full[block % 2]);
  }

  // A block of which there is Q. kLate: with the group's dq of the block before, whose flags these
  // are.
  template <bool kLate>
  __device__ __forceinline__ void take_block(int flags, int before, float (&sum)[kSums]) {
    uint32_t left[4][4];
    if constexpr (kOwnsDk)
      compute_gradients(left);
    else
      compute_weights(left);
    if ((flags & kClear) == 0) {
      const QueryTiles<T, Shape> tiles{shared.q[stage()], shared.dout[dout_stage()]};
      if (!tiles.found_finite(kGroup, thread))
        tiles.drop(kGroup, thread, false, parameters.dropped);
    }
    const uint64_t right = kOwnsDk ? tile_of(shared.q[stage()], kQueryPanel)
                                   : tile_of(shared.dout[dout_stage()], kQueryPanel);
    float dq[32];
    if constexpr (kLate && kHasDq) {
      wait_for_ds(block - 1);
      if ((before & kClear) == 0) item_keys().drop_not_finite();
      start_dq(dq, block - 1, kFirstPanel);
    }
    begin_products();
    multiply_queries<T>(sum, left, right);
    commit_products();
    if constexpr (kHasDq && kOwnsDk) hand_over_ds(left);
    if constexpr (kLate && kHasDq) {
      wait_for_products<1>();
      hopper::pin(dq);
      if (kFirstPanel + 1 == kEndPanel) arrive_as_warp(barriers().ds_empty[(block - 1) % 2]);
      hand_over_dq(dq);
    }
    wait_for_products<0>();
    hopper::pin(sum);
    arrive_as_warp(barriers().dout_empty[dout_stage()]);
    if constexpr (kLate && kHasDq) {
      finish_dq(block - 1, kFirstPanel + 1);
      if ((before & kClear) == 0) item_keys().bring_again(shared.notes[block % kNotes]);
    }
    arrive_as_warp(barriers().empty[stage()]);
    ++block;
  }

  // One item; its first block's note is there.
  __device__ __forceinline__ void take_item(int flags) {
    float sum[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = 0;
    hopper::pin(sum);
    wait(barriers().k_full[item % kKeyStages], item / kKeyStages & 1);
    if constexpr (kHasDq) look_at_keys();
    if constexpr (kOwnsDk) wait(barriers().v_full, item & 1);
    take_block<false>(flags, flags, sum);
    while ((flags & kLast) == 0) {
      const int before = flags;
      flags = wait_for_note();
      take_block<true>(flags, before, sum);
    }
    if constexpr (kOwnsDk) arrive_as_warp(barriers().v_empty);
    if constexpr (kHasDq) {
      wait_for_ds(block - 1);
      if ((flags & kClear) == 0) item_keys().drop_not_finite();
      finish_dq(block - 1, kFirstPanel);
    }
    arrive_as_warp(barriers().k_empty[item % kKeyStages]);
    if (kHasDq && (flags & kFinal) != 0)
      hand_over_results(sum);
    else
      put_results(sum);
  }

  // Two panels at a time, as the place for dq holds them.
  __device__ __forceinline__ void hand_over_results(const float (&sum)[kSums]) {
    constexpr int kPanels = kColumns / kPanelColumns;
#pragma unroll
    for (int panel = 0; panel < kPanels; panel += 2)
      hand_over([&](uint32_t tile) {
        if (panel + 1 < kPanels)
          stage_keys<T, 2, kQueryPanel>(tile, sum, panel, kOwnsDk ? scale() : 1, thread);
        else
          stage_keys<T, 1, kQueryPanel>(tile, sum, panel, kOwnsDk ? scale() : 1, thread);
      });
  }
  __device__ __forceinline__ void put_results(const float (&sum)[kSums]) {
    const BlockNote note = shared.notes[(block - 1) % kNotes];
    if constexpr (kOwnsDk)
      put_keys<T>(parameters, parameters.dk, note, 0, parameters.shape.head_dim_qk, scale(), sum,
                  thread);
    else
      put_keys<T>(parameters, parameters.dv, note, 0, parameters.shape.head_dim_v, 1, sum, thread);
  }

  __device__ __forceinline__ void run() {
    for (int flags; ((flags = wait_for_note()) & kStop) == 0; ++item) take_item(flags);
    if constexpr (!kHasDq) return;
    // The sender finds the note to stop. Not before all warps have left their part of what was
    // last: a faster one would count in a slower one's place.
    wait(barriers().dq_empty[kGroup], (turn & 1) ^ 1);
    arrive_as_warp(barriers().dq_full[kGroup]);
  }
};

}  // namespace ringside::hopper::backward_detail
