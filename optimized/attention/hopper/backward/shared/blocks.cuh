// What the backward kernel's groups share: its arguments, shared memory, and notes about blocks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/attention/finite_words.cuh"
#include "optimized/attention/heads.h"
#include "optimized/attention/hopper/backward/shared/dims.h"
#include "optimized/attention/hopper/machine/bulk_tensor.h"
#include "optimized/attention/hopper/machine/numbers.h"
#include "optimized/attention/hopper/machine/wgmma.h"
#include "optimized/attention/hopper/queue.h"
#include "optimized/attention/hopper/score_policy.cuh"
#include "optimized/attention/kernel.h"
#include "optimized/tables/block_walk.h"

namespace ringside::hopper::backward_detail {

inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
inline constexpr int kThreads = kGroupThreads * (1 + kGroups);
inline constexpr unsigned kEveryLane = ~0u;
inline constexpr int kNotes = 16, kNotesAhead = 8;  // of the block that is being loaded, at most

enum class Dq : uint8_t {
  none,           // another kernel's
  add,            // in float32
  add_fragments,  // the same, AccumulatorLayout::fragments, which lack softmax_scale
  store,  // final: of the last item that adds in turn, or of the only one that its queries meet, if
          // one block of keys after the other, the last one first (kCarries)
};

RINGSIDE_HD constexpr bool adds(Dq dq) { return dq == Dq::add || dq == Dq::add_fragments; }

// Whether dq may be carried through an item's blocks of keys.
template <typename Shape, Dq kDq>
inline constexpr bool kMayCarry = kDq == Dq::store&& Shape::kCarries;

// Whether a group passes by blocks no row of which sees its keys.
template <typename Shape, Dq kDq>
inline constexpr bool kMayPass = Shape::kInHalves || (Shape::kCarries && kDq != Dq::none);

// Whether final dv leave from where the last block's queries and their dout were.
template <typename Shape, Dq kDq>
inline constexpr bool kLeavesRows = Shape::kTakesTurns&& kDq != Dq::none;
// Whether items may take turns at adding to dq; where dq can be carried, the last one is given what
// the others have added, and leaves final ones.
template <typename Shape, Dq kDq>
inline constexpr bool kTakesTurns = Shape::kTakesTurns && (adds(kDq) || kMayCarry<Shape, kDq>);

struct Maps {
  CUtensorMap q, k, v, dout, dq;
  CUtensorMap dk, dv;   // of final ones, if any
  CUtensorMap carried;  // dq in float32 on their way through the blocks of an item, or to the last
};

struct Parameters {
  Maps maps;
  AttentionShape shape;
  DeviceScalars lse, delta;
  WorkList work;
  QueueOrder order;           // of key heads, each as many times as its query heads have parts
  const int32_t* most_heads;  // as in BackwardArguments
  int head_parts;
  unsigned* taken;   // from the queue; 0 at the start
  int32_t* dropped;  // becomes 1 where numbers were dropped (seen_pairs.cuh); 0 at the start
  unsigned *turns, *first_stored;  // as in BackwardArguments
  DeviceMatrix dk, dv;
  bool is_first;
  int flags;       // of every note: kFinal
  bool has_final;  // items that say so are final
};
struct OptionParameters : Parameters {  // of launches with score options
  ScoreNumbers scores;
};
// Whether dk and dv of some items may be sent off.
__device__ __forceinline__ bool sends_keys(const Parameters& p) {
  return p.flags != 0 || p.has_final;
}
template <Options kOptions>
using ParametersOf = std::conditional_t<kOptions != Options::none, OptionParameters, Parameters>;

// What the scores of a query block need of its rows.
struct QueryRows {
  float shift[kQueries];        // of the exponent to base 2; +inf for rows that are not
  float minus_delta[kQueries];  // what d(weights) begin with
};

// What they see of the item's keys.
struct alignas(4) SeenKeysOfRows {
  uchar2 of[kQueries];  // first and number
  int clear;            // bit of a group: every row sees all of its keys
};

// What others must know of a query block, and of the item that it belongs to.
struct BlockNote {
  int row, rows, head;  // of the queries
  int flags;
  int key_row, keys, kv_head;  // of the item
  int item, partner, begin;    // numbers of the list, and the block's first row in the partner
  int turn;                    // of the item to add to dq, where items take turns
  int entry_head;              // of the item's entry of the queue
};
inline constexpr int kFirst = 1, kLast = 2;  // of the item's
inline constexpr int kClear = 4;             // every row sees all keys of the item
inline constexpr int kStop = 8;              // no block: nothing comes any more
// Of dq of its queries: a block of keys before it has left some that it goes on from; another one
// will go on.
inline constexpr int kCarried = 16, kCarriedOn = 32;
inline constexpr int kFinal = 64;  // nobody adds to the item's dk and dv
// Bits from these on, one for each group that has keys of its own: no row of the block sees any of
// them; none of the next block does.
inline constexpr int kUnseen = 128, kNextUnseen = 512;
// Nobody has added to dq of its queries before the item, which stores.
inline constexpr int kStores = 2048;

// Of a block's note, whether they do behind it.
template <typename Shape, Dq kDq>
__device__ __forceinline__ bool leaves_rows(int flags) {
  return kLeavesRows<Shape, kDq> && (flags & (kLast | kFinal)) == (kLast | kFinal);
}

// Named barriers: one a group, and four of both.
inline constexpr int kGroupBarrier = 1, kBothBarrier = kGroupBarrier + kGroups;
inline constexpr int kBoth = kGroups * kGroupThreads;  // threads

// A group waits for the other, which comes by another way where it passes a block that this one
// takes: each has a barrier of its own. kSecond: by turns, as a group may come to the next meeting
// before all of the other wait at this one.
template <bool kSecond>
__device__ __forceinline__ void meet(int group) {
  constexpr int kFirst = kBothBarrier + (kSecond ? kGroups : 0);
  let_pass(kFirst + 1 - group, kBoth);
  synchronize(kFirst + group, kBoth);
}

// "Full": what a group waits for before it reads; "empty": before it is written again.
template <typename Shape>
struct Barriers {
  static constexpr int kStages = Shape::kStages, kKeyStages = Shape::kKeyStages;
  static constexpr int kSent = 2 * kStages;  // of dq_sent: as many as may be sent and not passed
  // Arrivals of a warp, of a group and of both.
  static constexpr int kWarp = kArrivalsOfWarp, kGroup = 4 * kWarp, kAll = kGroups * kGroup;
  Barrier note_full[kNotes], note_empty[kNotesAhead];
  Barrier q_full[kStages], dout_full[Shape::kDoutStages];  // the latter with rows, unless split
  Barrier empty[kStages];                                  // Q, rows and, unless split, dO
  Barrier k_full[kKeyStages], k_empty[kKeyStages], v_full, v_empty;
  Barrier ds_full[2], ds_empty[2];
  Barrier dq_full[kGroups], dq_empty[kGroups];
  // Of an item's final dk and dv, where these leave from where K was and the last block's rows.
  // Groups may leave an item's dk before the sender has come to those of the item before.
  Barrier k_read, rows_read, dk_full[kKeyStages][kGroups], dv_full[kStages];
  Barrier k_again;         // see ItemKeys
  Barrier dq_sent[kSent];  // of a block, where items take turns

  // By one thread. sent: dk may leave from where K was, and who sends off says that it is empty.
  __device__ void init_all(bool sent) {
    constexpr int kGroupsOfValues = Shape::kKeyGroups * kGroup;  // which read V, write d(scores)
    for (Barrier& barrier : note_full) init(barrier, 1);
    for (Barrier& barrier : note_empty) init(barrier, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init(q_full[stage], 1);
      if constexpr (!Shape::kSplit) init(dout_full[stage], 1 + kWarp);
      init(empty[stage], kAll);
    }
    for (Barrier& barrier : k_full) init(barrier, 1);
    for (Barrier& barrier : k_empty) init(barrier, sent ? 1 : kAll);
    init(v_full, 1), init(v_empty, kGroupsOfValues);
    init(k_read, kAll), init(rows_read, kAll), init(k_again, 1);
    for (Barrier& barrier : dq_sent) init(barrier, 1);
    for (int stage = 0; stage < kKeyStages; ++stage)
      for (int group = 0; group < kGroups; ++group) init(dk_full[stage][group], kGroup);
    for (Barrier& barrier : dv_full) init(barrier, kAll);
    for (Barrier& barrier : ds_full) init(barrier, kGroupsOfValues);
    for (Barrier& barrier : ds_empty) init(barrier, kAll);
    for (int group = 0; group < kGroups; ++group)
      init(dq_full[group], kGroup), init(dq_empty[group], 1);
    if constexpr (!Shape::kSplit) publish_barriers();
  }
};
template <typename Shape>
struct SplitBarriers : Barriers<Shape> {
  Barrier rows_full[Shape::kStages], dout_empty[Shape::kDoutStages];
  Barrier weights_full, weights_empty;

  __device__ void init_all() {
    using Base = Barriers<Shape>;
    constexpr int kWarp = Base::kWarp, kGroup = Base::kGroup;
    Base::init_all(false);
    for (Barrier& barrier : this->dout_full) init(barrier, 1);
    for (Barrier& barrier : rows_full) init(barrier, kWarp);
    for (Barrier& barrier : dout_empty) init(barrier, kGroups * kGroup);
    init(weights_full, kGroup), init(weights_empty, kGroup);
    publish_barriers();
  }
};

// Shared memory. Tiles are panels of 128-byte rows.
template <typename Shape>
struct PlainShared {
  static constexpr int kStages = Shape::kStages;
  uint8_t k[Shape::kKeyStages][Shape::kKeyTile], v[Shape::kValueTile];  // the next item's K may
  uint8_t q[kStages][Shape::kQueryTile];                                // come early
  uint8_t dout[Shape::kDoutStages][Shape::kDoutTile];
  uint8_t ds[2][Shape::kDsTile];
  uint8_t dq[kGroups][Shape::kDqTile];
  QueryRows rows[kStages];
  SeenKeysOfRows seen[Shape::kSeenStages];
  BlockNote notes[kNotes];
  int keys_found[Shape::kFoundParts][kFoundStages];  // ItemKeys::word() of the last of which a part
                                                     // was not finite
  std::conditional_t<Shape::kSplit, SplitBarriers<Shape>, Barriers<Shape>> barriers;
};
// A group's final dv, where queries of a stage were and their dout.
template <typename Shape>
__device__ __forceinline__ uint8_t* place_of_dv(PlainShared<Shape>& shared, int group, int stage) {
  static_assert(Shape::kQueryTile == Shape::kDoutTile);
  return group == 0 ? shared.dout[stage] : shared.q[stage];
}
template <typename Shape>
struct SplitShared : PlainShared<Shape> {
  float4 weights[kQueries / 8]
                [kGroupThreads];  // of one group for the other, as registers hold them
};
template <typename Shape>
struct OptionShared : PlainShared<Shape> {
  ScorePlace places[Shape::kSeenStages];
};
template <typename Shape, Options kOptions>
using SharedOf =
    std::conditional_t<kOptions == Options::all, OptionShared<Shape>,
                       std::conditional_t<Shape::kSplit, SplitShared<Shape>, PlainShared<Shape>>>;

}  // namespace ringside::hopper::backward_detail
