// A group of the forward kernel: four warps, which own 64 rows of each item and hold their output
// in registers. While the scores of a block become weights, the block before is being weighed.
// Groups go their own ways: neither waits for the other's item to end.
#pragma once

#include "optimized/attention/hopper/forward/results.cuh"
#include "optimized/attention/hopper/machine/wgmma.h"

namespace ringside::hopper {

template <typename T, typename Shape, Options kOptions>
class Consumer {
 public:
  __device__ Consumer(const Parameters<kOptions>& parameters, Shared<Shape, kOptions>& shared,
                      int group)
      : p_(parameters), s_(shared), group_(group), softmax_(folded_scale(parameters)) {}

  __device__ __forceinline__ void run() {
    if (kTakesTurns && group_ == 1) let_pass(kTurnBarrier, 2 * kThreadsOfGroup);  // 0 begins
    BlockNote note = next_note();
    while (!(note.flags & kStop)) {
      if (rows_of_box(0, note.rows, group_) > 0)
        attend(note);
      else
        pass_over(note);
    }
    if (threadIdx.x % 32 == 0) wait_until_read<0>();
  }

 private:
  // Of a lane: two rows of a block's keys, and as a left operand.
  static constexpr int kKeys = Shape::kKeys;
  using Scores = hopper::Scores<kKeys>;
  using Weights = uint32_t[kKeys / 16][4];
  using Output = hopper::Output<Shape>;

  __device__ __forceinline__ BlockNote next_note() {
    wait(s_.k_full[k_.stage], k_.parity);
    BlockNote note = s_.notes[k_.stage];
    note.flags = __reduce_or_sync(~0u, note.flags);  // one for all, as the compiler is to know
    return note;
  }

  // The item that begins here, and those behind it as long as blocks follow each other that the
  // group sees: the end of one item is then a step like others, in which the last block of one is
  // weighed beside the first scores of the next. `note` goes on to the first that is left.
  __device__ __forceinline__ void attend(BlockNote& note) {
    Output output;
    Weights weights;
    BlockNote item = note;
    start_item(item, output);
    bool ended = false;  // the item has no further blocks
    bool waits = false;  // weights for their values
    do {
      const BlockNote before = item;
      const Softmax<kOptions> softmax_before = softmax_;
      bool finishes = ended, moves_on = true;
      if (waits && goes_on(note, ended)) {
        if (ended) {
          item = note;
          softmax_.start();
          next_queries();
        }
        ended = take_run(note, finishes, moves_on, output, weights);
      } else if (waits) {
        weigh_last(output, weights);
        waits = moves_on = false;
      } else if (note.sees(group_)) {
        ended = begin_run(note, output, weights);
        waits = true;
      } else {
        finishes = ended = skip(note);
      }
      if (finishes) {
        if (is_fresh_) clear(output);  // of an item that saw nothing
        finish<T, Shape, kOptions>(p_, s_, before, group_, softmax_before, output);
        is_fresh_ = true;
      }
      if (moves_on) note = next_note();
    } while (waits || !ended);
    items_.advance();
  }

  // Blocks that the group sees, one after the other, up to the item's last; one where an item
  // `begins`, the one before has still to be finished. `moves_on`: the note is not yet the next
  // one's.
  __device__ __forceinline__ bool take_run(BlockNote& note, bool begins, bool& moves_on,
                                           Output& output, Weights& weights) {
    while (true) {
      if (step(note, begins, output, weights)) return true;
      if (begins) return false;
      note = next_note();
      if (!note.sees(group_)) break;
    }
    moves_on = false;
    return false;
  }

  __device__ __forceinline__ void start_item(const BlockNote& item, Output& output) {
    is_fresh_ = !(item.flags & kResumes);
    if (is_fresh_) {
      softmax_.start();
    } else {
      clear(output);
      resume<T, Shape, kOptions>(p_, LaneRows(item, group_), item.head, softmax_, output);
      if constexpr (kOptions == Options::low_softcap) {
        float factor[2];
        softmax_.start_from_zero(factor);
        rescale(output, factor);
      }
    }
    if constexpr (kOptions != Options::none) softmax_.start_highest();
    wait(s_.q_full[items_.stage][group_], items_.parity);
  }
  __device__ __forceinline__ void next_queries() {
    items_.advance();
    wait(s_.q_full[items_.stage][group_], items_.parity);
  }
  // Whether the coming block, which the group may not see, follows one whose weights are in hand as
  // a step: of another item, if its output begins with nothing.
  __device__ __forceinline__ bool goes_on(const BlockNote& note, bool ended) const {
    return note.sees(group_) && !(ended && (note.flags & kResumes) != 0);
  }

  // The weights of a first block. True: the item ends with it.
  __device__ __forceinline__ bool begin_run(const BlockNote& note, Output& output,
                                            Weights& weights) {
    Scores scores;
    float factor[2];
    const Kept kept = drawn(note);
    take_turn(note);
    begin_products();
    score(scores);
    commit_products();
    end_turn(note);
    wait_for_products<0>();
    pin(scores);
    SeenKeys seen;
    const bool ends = hide_and_free(note, scores, seen);
    if (update_softmax(note, scores, factor, seen) && !is_fresh_) rescale(output, factor);
    end_softmax(note, scores, seen);
    if constexpr (kKnows<kOptions, Options::dropout>) drop<kKeys>(scores, kept);
    as_weights(weights, scores);
    return ends;
  }

  // Weighs the values of the block before, while the scores of the next one are computed and become
  // weights. Of another item, which `begins`, they do not touch the output of the one before. True:
  // the item ends with it.
  __device__ __forceinline__ bool step(const BlockNote& note, bool begins, Output& output,
                                       Weights& weights) {
    Scores scores;
    float factor[2];
    const Kept kept = drawn(note);
    take_turn(note);
    begin_products();
    score(scores);
    commit_products();
    weigh(output, weights);
    end_turn(note);
    wait_for_products<1>();
    pin(scores);
    SeenKeys seen;
    const bool ends = hide_and_free(note, scores, seen);
    const bool raises = update_softmax(note, scores, factor, seen);
    if constexpr (kKnows<kOptions, Options::dropout>)
      if (drops<kOptions>(p_.scores)) drop<kKeys>(scores, kept);
    wait_for_products<0>();
    pin(output);
    free_v();
    if (raises && !begins) rescale(output, factor);
    pin(scores);
    end_softmax(note, scores, seen);
    as_weights(weights, scores);
    return ends;
  }

  // The values of a run's last block.
  __device__ __forceinline__ void weigh_last(Output& output, const Weights& weights) {
    weigh(output, weights);
    wait_for_products<0>();
    pin(output);
    free_v();
  }

  // A block that the group does not see. True: the item ends with it.
  __device__ __forceinline__ bool skip(BlockNote& note) {
    take_turn(note);
    end_turn(note);
    const bool ends = free_k(note);
    skip_v();
    return ends;
  }

  // An item all of whose rows are the other group's.
  __device__ __forceinline__ void pass_over(BlockNote& note) {
    for (bool ends = false; !ends; note = next_note()) {
      ends = note.flags & kLastBlock;
      arrive_as_warp(s_.k_empty[k_.stage]);
      k_.advance();
      skip_v();
    }
  }

  // A number that all lanes agree on, as the compiler is to know: what follows from it lies in
  // registers of the whole warp, as descriptors must.
  __device__ __forceinline__ static uint32_t of_warp(uint32_t number) {
    return __reduce_or_sync(~0u, number);
  }
  // scores = Q K^T
  __device__ __forceinline__ void score(Scores& scores) {
    const uint32_t where =
        of_warp(k_.stage * (Shape::kKeyBytes / 16) |
                (items_.stage * kGroups + group_) * (Shape::kQueryBytes / 16) << 16);
    const uint64_t q = tile_descriptor(shared_address(s_.q)) + (where >> 16);
    const uint64_t k = tile_descriptor(shared_address(s_.k)) + (where & 0xffff);
#pragma unroll
    for (int i = 0; i < Shape::kQk / 16; ++i)
      Product<T, kKeys>::template multiply<Deep::along_rows, Deep::along_rows>(
          scores, moved(q, slice_offset<Deep::along_rows>(i, kBoxBytes)),
          moved(k, slice_offset<Deep::along_rows>(i, Shape::kPanelBytes)), i > 0);
  }

  // output += P V, or = where there is nothing yet
  __device__ __forceinline__ void weigh(Output& output, const Weights& weights) {
    wait(s_.v_full[v_.stage], v_.parity);
    begin_products();
    const uint64_t v = tile_descriptor(shared_address(s_.v), Shape::kPanelBytes) +
                       of_warp(v_.stage * (Shape::kValueBytes / 16));
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      Product<T, Shape::kV>::template multiply<Deep::down_rows>(
          output, weights[i], moved(v, slice_offset<Deep::down_rows>(i, Shape::kPanelBytes)),
          i > 0 || !is_fresh_);
    commit_products();
    is_fresh_ = false;
  }

  // Which weights of a block dropout keeps: drawn while registers of scores are free.
  __device__ __forceinline__ Kept drawn(const BlockNote& note) const {
    Kept kept;
    if constexpr (kKnows<kOptions, Options::dropout>)
      if (drops<kOptions>(p_.scores))
        draw_kept<kKeys>(kept, p_.scores, s_.places[k_.stage], note.head, group_);
    return kept;
  }

  // Scores are there: the block's keys and its table are not needed any more. True: the item ends
  // with it. `seen`: of a block that is masked.
  __device__ __forceinline__ bool hide_and_free(const BlockNote& note, Scores& scores,
                                                SeenKeys& seen) {
    const int thread = threadIdx.x % kThreadsOfGroup;
    const int row = group_ * kGroupRows + thread / 32 * 16 + thread % 32 / 4;
    if constexpr (kKnowsPlaces<kOptions>)
      become_logits<kOptions, kKeys>(scores, p_.scores, s_.places[k_.stage], note.head, group_);
    if (note.is_masked(group_)) seen = hide_unseen<kKeys>(scores, s_.seen[k_.stage] + row);
    return free_k(note);
  }

  __device__ __forceinline__ bool update_softmax(const BlockNote& note, Scores& scores,
                                                 float (&factor)[2], const SeenKeys& seen) {
    if constexpr (kBends<kOptions>)
      return softmax_.look(scores, factor, p_.scores, note.is_masked(group_), seen);
    else
      return softmax_.update(scores, factor);
  }
  // What takes so long that the block before has been weighed: its weights' registers are free.
  __device__ __forceinline__ void end_softmax(const BlockNote& note, Scores& scores,
                                              const SeenKeys& seen) {
    if constexpr (kBends<kOptions>) softmax_.weigh(scores, p_.scores, note.is_masked(group_), seen);
  }

  __device__ __forceinline__ static void clear(Output& output) {
#pragma unroll
    for (float& x : output) x = 0;
  }
  __device__ __forceinline__ static void rescale(Output& output, const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < Shape::kV / 2; ++n) output[n] *= factor[n / 2 % 2];
  }

  __device__ __forceinline__ static void as_weights(Weights& weights, const Scores& scores) {
#pragma unroll
    for (int n = 0; n < kKeys / 4; ++n)
      weights[n / 4][n % 4] = pack<T>(scores[2 * n], scores[2 * n + 1]);
  }

  // The groups issue products by turns: the other one's run while this one's softmax does. A
  // softmax that bends scores takes longer than products: nobody waits for a turn there.
  static constexpr bool kTakesTurns = !kBends<kOptions>;
  __device__ __forceinline__ void take_turn(const BlockNote& note) {
    if (kTakesTurns && (note.flags & kBothHaveRows))
      synchronize(kTurnBarrier + group_, 2 * kThreadsOfGroup);
  }
  __device__ __forceinline__ void end_turn(const BlockNote& note) {
    if (kTakesTurns && (note.flags & kBothHaveRows))
      let_pass(kTurnBarrier + 1 - group_, 2 * kThreadsOfGroup);
  }

  // True: it was the item's last block.
  __device__ __forceinline__ bool free_k(const BlockNote& note) {
    arrive_as_warp(s_.k_empty[k_.stage]);
    k_.advance();
    const bool ends = note.flags & kLastBlock;
    if (ends) arrive_behind_syncwarp(s_.q_empty[items_.stage][group_], threadIdx.x);
    return ends;
  }
  __device__ __forceinline__ void free_v() {
    arrive_as_warp(s_.v_empty[v_.stage]);
    v_.advance();
  }
  __device__ __forceinline__ void skip_v() {
    wait(s_.v_full[v_.stage], v_.parity);
    free_v();
  }

  const Parameters<kOptions>& p_;
  Shared<Shape, kOptions>& s_;
  int group_;
  bool is_fresh_ = true;  // output, which then holds anything
  Softmax<kOptions> softmax_;
  RingPlace<Shape::kStages> k_, v_;
  RingPlace<Shape::kItemStages> items_;
};

}  // namespace ringside::hopper
