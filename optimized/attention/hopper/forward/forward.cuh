// What the forward kernel is given, and what lies in its shared memory.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "optimized/attention/finite_words.cuh"
#include "optimized/attention/heads.h"
#include "optimized/attention/hopper/block_note.h"
#include "optimized/attention/hopper/forward/dims.h"
#include "optimized/attention/hopper/forward/item_queue.cuh"
#include "optimized/attention/hopper/forward/softmax.cuh"
#include "optimized/attention/hopper/machine/barrier.h"
#include "optimized/attention/hopper/queue.h"
#include "optimized/attention/hopper/score_policy.cuh"
#include "optimized/attention/kernel.h"

namespace ringside::hopper {

struct ForwardMaps {
  CUtensorMap q;
  CUtensorMap k, v;  // with boxes of a block's rows
  CUtensorMap out;   // of final results alone, if any, with boxes of a warp's rows
};

struct ForwardParameters {
  ForwardMaps maps;
  AttentionShape shape;
  WorkList work;
  QueueOrder order;
  int32_t* taken;    // of the queue, behind the first that each block of threads has; 0 at first
  int32_t* dropped;  // becomes 1 where values were dropped (seen_pairs.cuh); 0 at first
  DeviceMatrix out;  // float32, where not final
  DeviceScalars lse;
  bool out_in_tiles;
  uint32_t flags;  // of every note: kResumes, kFinal
  bool has_final;  // items that say so are final
};
struct OptionParameters : ForwardParameters {  // of launches with score options
  ScoreNumbers scores;
};
template <Options kOptions>
using Parameters =
    std::conditional_t<kOptions != Options::none, OptionParameters, ForwardParameters>;

inline constexpr int kPanelColumns = kSwizzledBytes / 2;
inline constexpr int kBoxBytes = kBoxRows * kSwizzledBytes;
inline constexpr int kWarpsOfGroup = 4, kThreadsOfGroup = 128;
inline constexpr int kRowsOfWarp = kGroupRows / kWarpsOfGroup;
inline constexpr int kThreads = kThreadsOfGroup * (1 + kGroups);
inline constexpr int kProducerRegisters = 88, kConsumerRegisters = 208;

// What is to be loaded of a block, if some row sees some of it. Values of a block that is seen in
// part are inspected before consumers have them.
struct alignas(16) LoadedBlock {
  static constexpr uint32_t kSeen = 1, kInspected = 2, kNoMore = 4;
  uint32_t flags = 0;
  int32_t row = 0, keys = 0, kv_head = 0;

  RINGSIDE_HD bool is_seen() const { return flags & kSeen; }
  RINGSIDE_HD bool is_inspected() const { return flags & kInspected; }
  RINGSIDE_HD bool is_none() const { return flags & kNoMore; }
};

// What the producer whose turn it is finds, and leaves.
struct ProducerTurn {
  uint32_t blocks = 0, queries[kGroups] = {};  // how many have been loaded
  int idle = 0;  // so many turns, up to the last, were of producers that have no items left
};

inline constexpr int kTurnBarrier = 1;  // named ones: one a group

template <typename Shape>
struct ForwardShared {
  static constexpr int kStages = Shape::kStages, kItemStages = Shape::kItemStages;
  static constexpr int kValueTasks = Shape::kValueTasks;
  uint8_t q[kItemStages][kGroups][Shape::kQueryBytes];
  uint8_t k[kStages][Shape::kKeyBytes], v[kStages][Shape::kValueBytes];
  uint8_t out[kGroups][Shape::kStagedBytes];  // apart: the next item's values need not wait for it
  SeenTable seen[kStages];
  SeenSegment seen_of_segment[kProducers];  // a producer's own
  WorkItem taken_items[kProducers];         // likewise
  BlockNote notes[kStages];
  LoadedBlock value_tasks[kValueTasks];
  ProducerTurn turn;
  Barrier turn_full[kProducers];  // it is this one's turn
  Barrier value_task_full[kValueTasks], value_task_empty[kValueTasks];
  Barrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  Barrier v_landed[kStages];  // not for consumers yet
  Barrier q_full[kItemStages][kGroups], q_empty[kItemStages][kGroups];
};
template <typename Shape>
struct PlaceShared : ForwardShared<Shape> {
  ScorePlace places[Shape::kStages];  // of the blocks of keys
};
// Whether what becomes of scores depends on where they stand.
template <Options kOptions>
inline constexpr bool kKnowsPlaces = kOptions != Options::none && !kBends<kOptions>;
template <typename Shape, Options kOptions>
using Shared = std::conditional_t<kKnowsPlaces<kOptions>, PlaceShared<Shape>, ForwardShared<Shape>>;

}  // namespace ringside::hopper
