// What the backward kernel's groups share: its arguments, shared memory, and notes about blocks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/attention/finite_words.cuh"
#include "optimized/attention/heads.h"
#include "optimized/attention/hopper/machine/bulk_tensor.h"
#include "optimized/attention/hopper/machine/numbers.h"
#include "optimized/attention/hopper/machine/wgmma.h"
#include "optimized/attention/hopper/queue.h"
#include "optimized/attention/hopper/score_policy.cuh"
#include "optimized/attention/kernel.h"
#include "optimized/tables/block_walk.h"

namespace ringside::hopper::backward_detail {

inline constexpr int kQueries = 64, kKeys = 128, kDim = 128;  // rows of blocks, padded columns
inline constexpr int kGroups = 2, kGroupKeys = kKeys / kGroups, kGroupThreads = 128;
inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
inline constexpr int kThreads = kGroupThreads * (1 + kGroups);
inline constexpr int kStages = 2, kKeyStages = 2;
inline constexpr int kSeenStages = 4;               // written while two blocks may still be in use
inline constexpr int kNotes = 16, kNotesAhead = 8;  // of the block that is being loaded, at most

enum class Dq : uint8_t {
  none,   // another kernel's
  add,    // in float32
  store,  // final: the item is the only one that its queries meet
};

// How many threads of a warp arrive for it. One, behind __syncwarp(); where there is no dq all do,
// which costs little there: racecheck takes what the others have read or written for unordered.
template <Dq kDq>
inline constexpr int kArriving = kDq == Dq::none ? 32 : 1;

template <int kThreadsArriving>
__device__ __forceinline__ void arrive_of_warp(Barrier& barrier) {
  __syncwarp();
  if (kThreadsArriving == 32 || threadIdx.x % 32 == 0) arrive(barrier);
}

struct Maps {
  CUtensorMap q, k, v, dout, dq;
  CUtensorMap dk, dv;  // of final ones
};

struct Parameters {
  Maps maps;
  AttentionShape shape;
  const float *lse, *delta;
  WorkList work;
  QueueOrder order;
  unsigned* taken;   // from the queue; 0 at the start
  int32_t* dropped;  // becomes 1 where numbers were dropped (seen_pairs.cuh); 0 at the start
  DeviceMatrix dk, dv;
  bool is_first, is_final;
};
struct OptionParameters : Parameters {  // of launches with score options
  ScoreNumbers scores;
};
template <bool kOptions>
using ParametersOf = std::conditional_t<kOptions, OptionParameters, Parameters>;

// What the scores of a query block need of its rows.
struct QueryRows {
  float shift[kQueries], delta[kQueries];  // of the exponent to base 2; +inf for rows that are not
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
};
inline constexpr int kFirst = 1, kLast = 2;  // of the item's
inline constexpr int kClear = 4;             // every row sees all keys of the item
inline constexpr int kStop = 8;              // no block: nothing comes any more

// Named barriers: one a group, and one of both.
inline constexpr int kGroupBarrier = 1, kBothBarrier = 3;

// Bytes of shared memory. Tiles are panels of 128-byte rows.
inline constexpr int kPanelColumns = 64;  // of 16 bits
inline constexpr int kKeyPanel = kKeys * 128, kQueryPanel = kQueries * 128;
inline constexpr int kKeyTile = 2 * kKeyPanel, kQueryTile = 2 * kQueryPanel;
inline constexpr int kDsTile = kKeys * 128;      // [keys][queries]
inline constexpr int kDqTile = 2 * kQueryPanel;  // [queries][64 float32] of a group: two panels

// "Full": what a group waits for before it reads; "empty": before it is written again.
struct Barriers {
  Barrier note_full[kNotes], note_empty[kNotesAhead];
  Barrier q_full[kStages], dout_full[kStages];  // the latter with rows
  Barrier empty[kStages];                       // Q, dO and rows
  Barrier k_full[kKeyStages], k_empty[kKeyStages], v_full, v_empty;
  Barrier ds_full[2], ds_empty[2];
  Barrier dq_full[kGroups], dq_empty[kGroups];

  // By one thread. of_rows: how many threads of a warp say that they wrote or have read rows.
  __device__ void init_all(int of_rows) {
    constexpr int kWarps = 4 * kGroups;
    for (Barrier& barrier : note_full) init(barrier, 1);
    for (Barrier& barrier : note_empty) init(barrier, 1);
    for (int stage = 0; stage < kStages; ++stage)
      init(q_full[stage], 1), init(dout_full[stage], 1 + of_rows),
          init(empty[stage], kWarps * of_rows);
    for (Barrier& barrier : k_full) init(barrier, 1);
    for (Barrier& barrier : k_empty) init(barrier, kWarps);
    init(v_full, 1), init(v_empty, kWarps);
    for (Barrier& barrier : ds_full) init(barrier, kWarps);
    for (Barrier& barrier : ds_empty) init(barrier, kWarps);
    for (int group = 0; group < kGroups; ++group) init(dq_full[group], 4), init(dq_empty[group], 1);
    publish_barriers();
  }
};

// Shared memory. Tiles are panels of 128-byte rows.
struct Shared {
  uint8_t k[kKeyStages][kKeyTile], v[kKeyTile];  // the next item's K comes early
  uint8_t q[kStages][kQueryTile], dout[kStages][kQueryTile];
  uint8_t ds[2][kDsTile];
  uint8_t dq[kGroups][kDqTile];
  QueryRows rows[kStages];
  SeenKeysOfRows seen[kSeenStages];
  BlockNote notes[kNotes];
  int keys_found[kGroups][kKeyStages];  // an item's: not finite in the group's columns of dq
  Barriers barriers;
};
struct OptionShared : Shared {
  ScorePlace places[kSeenStages];
};
template <bool kOptions>
using SharedOf = std::conditional_t<kOptions, OptionShared, Shared>;
static_assert(sizeof(OptionShared) <= 227 << 10);

}  // namespace ringside::hopper::backward_detail
