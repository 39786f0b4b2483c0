// A group of the forward kernel: four warps, which own 64 rows of each item and hold their output
// in registers. While the scores of a block become weights, the block before is being weighed.
// Groups go their own ways: neither waits for the other's item to end.
#pragma once

#include "optimized/attention/hopper/forward/results.cuh"
#include "optimized/attention/hopper/machine/wgmma.h"

namespace ringside::hopper {

template <typename T>
class Consumer {
 public:
  __device__ Consumer(const ForwardParameters& parameters, ForwardShared& shared, int group)
      : p_(parameters), s_(shared), group_(group), softmax_(folded_scale(parameters.shape)) {}

  __device__ __forceinline__ void run() {
    if (group_ == 1) let_pass(kTurnBarrier, 2 * kThreadsOfGroup);  // the other group begins
    while (true) {
      BlockNote note = next_note();
      if (note.flags & kStop) break;
      if (rows_of_box(0, note.rows, group_) > 0)
        attend(note);
      else
        pass_over(note);
    }
    if (threadIdx.x % 32 == 0) wait_until_read<0>();
  }

 private:
  // Of a lane: two rows of so many keys, as a left operand.
  template <int kKeys>
  using Weights = uint32_t[kKeys / 16][4];

  __device__ __forceinline__ BlockNote next_note() {
    wait(s_.k_full[k_.stage], k_.parity);
    BlockNote note = s_.notes[k_.stage];
    note.flags = __reduce_or_sync(~0u, note.flags);  // one for all, as the compiler is to know
    return note;
  }

  __device__ __forceinline__ void attend(BlockNote& note) {
    Output output;
#pragma unroll
    for (float& x : output) x = 0;
    if (p_.resumes)
      resume<T>(p_, LaneRows(note, group_), note.head, softmax_, output);
    else
      softmax_.start();
    wait(s_.q_full[items_.stage][group_], items_.parity);
    bool more = true;
    while (more) {  // once or twice, as a rule
      while (more && note.halves(group_) == kNoHalf) more = skip(note);
      if (more) more = attend_run(note, output);
    }
    items_.advance();
    finish<T>(p_, s_, note, group_, softmax_, output);
  }

  // Blocks in a row that the group sees, up to one of which it sees half. False: the item's last is
  // among them.
  __device__ __forceinline__ bool attend_run(BlockNote& note, Output& output) {
    if (note.halves(group_) != kBothHalves) {
      Weights<kHalfKeys> half;
      const bool more = begin_run<kHalfKeys>(note, output, half);
      weigh_last<kHalfKeys>(output, half);
      return more;
    }
    Weights<kBlockKeys> weights;
    bool more = begin_run<kBlockKeys>(note, output, weights);
    while (more && note.halves(group_) == kBothHalves)
      more = step<kBlockKeys>(note, output, weights, weights);
    if (more && note.halves(group_) != kNoHalf) {
      Weights<kHalfKeys> half;
      more = step<kHalfKeys>(note, output, weights, half);
      weigh_last<kHalfKeys>(output, half);
    } else {
      weigh_last<kBlockKeys>(output, weights);
    }
    return more;
  }

  // The weights of a first block; `note` goes on to the next. False: there is none.
  template <int kKeys>
  __device__ __forceinline__ bool begin_run(BlockNote& note, Output& output,
                                            Weights<kKeys>& weights) {
    Scores<kKeys> scores;
    float factor[2];
    const int first_key = first_key_of(note);
    take_turn(note);
    begin_products();
    score<kKeys>(scores, first_key);
    commit_products();
    end_turn(note);
    if (note.is_masked(group_)) drop_not_finite<kKeys>(v_, first_key);
    wait_for_products<0>();
    pin(scores);
    const bool more = hide_and_free<kKeys>(note, scores, first_key);
    if (softmax_.update(scores, factor)) rescale(output, factor);
    as_weights<kKeys>(weights, scores);
    first_key_ = first_key;
    if (more) note = next_note();
    return more;
  }

  // Weighs the values of the block before, all of which the group saw, while the scores of the next
  // one are computed and become weights.
  template <int kKeys>
  __device__ __forceinline__ bool step(BlockNote& note, Output& output,
                                       const Weights<kBlockKeys>& before, Weights<kKeys>& weights) {
    Scores<kKeys> scores;
    float factor[2];
    const int first_key = first_key_of(note);
    take_turn(note);
    begin_products();
    score<kKeys>(scores, first_key);
    commit_products();
    weigh<kBlockKeys>(output, before, 0);
    end_turn(note);
    if (note.is_masked(group_)) drop_not_finite<kKeys>(v_.next(), first_key);
    wait_for_products<1>();
    pin(scores);
    const bool more = hide_and_free<kKeys>(note, scores, first_key);
    const bool raises = softmax_.update(scores, factor);
    wait_for_products<0>();
    pin(output);
    free_v();
    if (raises) rescale(output, factor);
    pin(scores);
    as_weights<kKeys>(weights, scores);
    first_key_ = first_key;
    if (more) note = next_note();
    return more;
  }

  // The values of a run's last block.
  template <int kKeys>
  __device__ __forceinline__ void weigh_last(Output& output, const Weights<kKeys>& weights) {
    weigh<kKeys>(output, weights, first_key_);
    wait_for_products<0>();
    pin(output);
    free_v();
  }

  // A block that the group does not see. False: it is the item's last.
  __device__ __forceinline__ bool skip(BlockNote& note) {
    take_turn(note);
    end_turn(note);
    const bool more = free_k(note);
    skip_v();
    if (more) note = next_note();
    return more;
  }

  // An item all of whose rows are the other group's.
  __device__ __forceinline__ void pass_over(BlockNote& note) {
    while (true) {
      release(s_.k_empty[k_.stage]);
      k_.advance();
      skip_v();
      if (note.flags & kLastBlock) break;
      note = next_note();
    }
  }

  // A number that all lanes agree on, as the compiler is to know: what follows from it lies in
  // registers of the whole warp, as descriptors must.
  __device__ __forceinline__ static uint32_t of_warp(uint32_t number) {
    return __reduce_or_sync(~0u, number);
  }
  // From the beginning of a ring to a key, in units of descriptors.
  __device__ __forceinline__ static uint32_t words_of_keys(const RingPlace<kStages>& ring,
                                                           int first_key) {
    return (ring.stage * kBlockBytes + first_key * kSwizzledBytes) / 16;
  }

  // scores = Q K^T, of the keys from first_key on
  template <int kKeys>
  __device__ __forceinline__ void score(Scores<kKeys>& scores, int first_key) {
    const uint32_t where = of_warp(words_of_keys(k_, first_key) |
                                   (items_.stage * kGroups + group_) * (kGroupBytes / 16) << 16);
    const uint64_t q = tile_descriptor(shared_address(s_.q)) + (where >> 16);
    const uint64_t k = tile_descriptor(shared_address(s_.k)) + (where & 0xffff);
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; ++i)
      Product<T, kKeys>::template multiply<Deep::along_rows, Deep::along_rows>(
          scores, moved(q, slice_offset<Deep::along_rows>(i, kBoxBytes)),
          moved(k, slice_offset<Deep::along_rows>(i, kKeyPanelBytes)), i > 0);
  }

  // output += P V, likewise
  template <int kKeys>
  __device__ __forceinline__ void weigh(Output& output, const Weights<kKeys>& weights,
                                        int first_key) {
    wait(s_.v_full[v_.stage], v_.parity);
    begin_products();
    const uint64_t v = tile_descriptor(shared_address(s_.v), kKeyPanelBytes) +
                       of_warp(words_of_keys(v_, first_key));
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      Product<T, kHeadDim>::template multiply<Deep::down_rows>(
          output, weights[i], moved(v, slice_offset<Deep::down_rows>(i, kKeyPanelBytes)), true);
    commit_products();
  }

  // Values of the block whose scores are on their way, which the group sees in part: 0 in the place
  // of what is not finite (seen_pairs.cuh). The other group may do the same meanwhile.
  template <int kKeys>
  __device__ __forceinline__ void drop_not_finite(const RingPlace<kStages>& place, int first_key) {
    constexpr int kChunks = kKeys * kSwizzledBytes / 16 / kThreadsOfGroup;  // of a thread and panel
    wait(s_.v_full[place.stage], place.parity);
    uint8_t* rows = s_.v[place.stage] + first_key * kSwizzledBytes;
    const int thread = threadIdx.x % kThreadsOfGroup;
    const auto for_each_chunk = [&](auto visit) {  // few at a time: registers are products'
#pragma unroll
      for (int panel = 0; panel < kHeadDim / kPanelColumns; ++panel)
#pragma unroll 2
        for (int i = 0; i < kChunks; ++i)
          visit(reinterpret_cast<uint4*>(rows +
                                         panel * kKeyPanelBytes)[i * kThreadsOfGroup + thread]);
    };
    FiniteCheck<T> check;
    for_each_chunk([&](const uint4& chunk) { check.look_at(chunk); });
    if (all_of(kValuesBarrier + group_, kThreadsOfGroup, check.all_finite())) return;
    for_each_chunk([](uint4& chunk) { chunk = finite_part<T>(chunk); });
    *p_.dropped = 1;
    show_to_async();
    synchronize(kValuesBarrier + group_, kThreadsOfGroup);
  }

  __device__ __forceinline__ int first_key_of(const BlockNote& note) const {
    return note.halves(group_) == kSecondHalf ? kHalfKeys : 0;
  }

  // Scores are there: the block's keys and its table are not needed any more. False: it is the
  // item's last block.
  template <int kKeys>
  __device__ __forceinline__ bool hide_and_free(const BlockNote& note, Scores<kKeys>& scores,
                                                int first_key) {
    const int thread = threadIdx.x % kThreadsOfGroup;
    const int row = group_ * kGroupRows + thread / 32 * 16 + thread % 32 / 4;
    if (note.is_masked(group_)) hide_unseen<kKeys>(scores, s_.seen[k_.stage] + row, first_key);
    return free_k(note);
  }

  __device__ __forceinline__ static void rescale(Output& output, const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) output[n] *= factor[n / 2 % 2];
  }

  template <int kKeys>
  __device__ __forceinline__ static void as_weights(Weights<kKeys>& weights,
                                                    const Scores<kKeys>& scores) {
#pragma unroll
    for (int n = 0; n < kKeys / 4; ++n)
      weights[n / 4][n % 4] = pack<T>(scores[2 * n], scores[2 * n + 1]);
  }

  // The groups issue products by turns: the other one's run while this one's softmax does.
  __device__ __forceinline__ void take_turn(const BlockNote& note) {
    if (note.flags & kBothHaveRows) synchronize(kTurnBarrier + group_, 2 * kThreadsOfGroup);
  }
  __device__ __forceinline__ void end_turn(const BlockNote& note) {
    if (note.flags & kBothHaveRows) let_pass(kTurnBarrier + 1 - group_, 2 * kThreadsOfGroup);
  }

  // A warp has read a stage.
  __device__ __forceinline__ void release(Barrier& empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty);
  }
  // False: it was the item's last block.
  __device__ __forceinline__ bool free_k(const BlockNote& note) {
    release(s_.k_empty[k_.stage]);
    k_.advance();
    const bool more = !(note.flags & kLastBlock);
    if (!more && threadIdx.x % 32 == 0) arrive(s_.q_empty[items_.stage][group_]);
    return more;
  }
  __device__ __forceinline__ void free_v() {
    release(s_.v_empty[v_.stage]);
    v_.advance();
  }
  __device__ __forceinline__ void skip_v() {
    wait(s_.v_full[v_.stage], v_.parity);
    free_v();
  }

  const ForwardParameters& p_;
  ForwardShared& s_;
  int group_;
  OnlineSoftmax softmax_;
  RingPlace<kStages> k_, v_;
  RingPlace<kItemStages> items_;
  int first_key_ = 0;  // of the block whose weights wait for their values
};

}  // namespace ringside::hopper
