// The warp of the producer group that loads what is known of the blocks' rows: what the softmax
// left, and which of an item's keys each sees.
#pragma once

#include "optimized/attention/hopper/backward/shared/notes.cuh"
#include "optimized/attention/hopper/seen_line.h"

namespace ringside::hopper::backward_detail {

__device__ inline uchar2 packed(Interval seen) {
  return {static_cast<uint8_t>(seen.begin), static_cast<uint8_t>(seen.size())};
}

// The block's first key, counted from that of the item's segment.
__device__ inline int first_key_of(const BlockNote& note, const WorkItem& item) {
  return note.key_row - item.own.row;
}

// Which of the item's keys a row of a block sees, where it must be asked.
__device__ inline uchar2 keys_of_row(const Parameters& parameters, const BlockNote& note, int i) {
  if (i >= note.rows) return {0, 0};
  const WorkItem& item = parameters.work.items[note.item];
  const int query = parameters.work.partners[note.partner].position(note.begin + i);
  const Interval seen = sequence_mask(parameters.work, item).visible_rows(item.own, query);
  const int first_key = first_key_of(note, item);
  const int first = max(seen.begin - first_key, 0), last = min(seen.end - first_key, note.keys);
  if (first >= last) return {0, 0};
  return packed({first, last});
}

// Bits of the groups whose keys a row sees all of. A row that is not there sees none: its zeros
// times a key that is infinite are no weight.
template <int kKeyGroups>
__device__ inline int groups_seen(uchar2 seen) {
  int groups = 0;
#pragma unroll
  for (int group = 0; group < kKeyGroups; ++group) {
    const int begin = group * kGroupKeys, end = begin + kGroupKeys;
    if (seen.x <= begin && seen.x + seen.y >= end) groups |= 1 << group;
  }
  return groups;
}

// A number that is asked for here, not where it is used.
__device__ inline float load_ahead(const float* from) {
  float x;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(from));
  return x;
}

// What the softmax left of a lane's rows of a block.
struct LaneRows {
  static constexpr int kRows = kQueries / 32;
  float lse[kRows], delta[kRows];

  // Rows that are not get the last one's.
  __device__ LaneRows(const Parameters& parameters, const BlockNote& note) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = note.row + min(row_of_lane(i), note.rows - 1);
      lse[i] = load_ahead(&parameters.lse.of(row, note.head));
      delta[i] = load_ahead(&parameters.delta.of(row, note.head));
    }
  }
  __device__ static int row_of_lane(int i) { return static_cast<int>(threadIdx.x) % 32 + 32 * i; }

  // Rows that are not there weigh nothing.
  __device__ void write(QueryRows& to, int rows) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = row_of_lane(i);
      const bool is_row = row < rows;
      // Of scores of -inf, which have that lse, no -inf - -inf; NaN stays.
      const float shift = lse[i] == -INFINITY ? -1e30f : lse[i] * kLog2E;
      to.shift[row] = is_row ? shift : INFINITY, to.minus_delta[row] = is_row ? -delta[i] : 0;
    }
  }
};

// What a block's rows see of the item's keys, where not all see all.
template <int kKeyGroups>
__device__ inline void write_seen(const Parameters& parameters, const BlockNote& note,
                                  SeenKeysOfRows& to) {
  int clear = (1 << kKeyGroups) - 1;
  const auto write = [&](auto seen_of) {
#pragma unroll 1
    for (int row = threadIdx.x % 32; row < kQueries; row += 32) {
      const uchar2 seen = seen_of(row);
      to.of[row] = seen;
      clear &= groups_seen<kKeyGroups>(seen);
    }
    clear = __reduce_and_sync(kEveryLane, clear);
  };
  if ((note.flags & kClear) == 0) {
    const WorkItem& item = parameters.work.items[note.item];
    const SequenceMask mask = sequence_mask(parameters.work, item);
    const Segment q = parameters.work.partners[note.partner];
    SeenLine line(mask, item.own, q, note.begin, first_key_of(note, item));
    if (line.holds) {
      line.keys = note.keys;
      write([&](int row) { return row < note.rows ? packed(line.seen_by(row)) : uchar2{0, 0}; });
    } else {
      write([&](int row) { return keys_of_row(parameters, note, row); });
    }
  }
  if (threadIdx.x % 32 == 0) to.clear = clear;
}

__device__ inline ScorePlace place_of(const Parameters& parameters, const ScoreNumbers& scores,
                                      const BlockNote& note) {
  const WorkItem& item = parameters.work.items[note.item];
  return {scores,
          sequence_mask(parameters.work, item),
          parameters.work.partners[note.partner],
          note.begin,
          item.own,
          first_key_of(note, item)};
}

// All that is known of the rows of block after block. By all lanes of a warp, of two rows each;
// what memory has of them comes while the mask is asked and their place becomes free.
template <typename Shape, Options kOptions>
__device__ void load_rows(const ParametersOf<kOptions>& parameters,
                          SharedOf<Shape, kOptions>& shared) {
  constexpr int kStages = Shape::kStages, kSeenStages = Shape::kSeenStages;
  for (uint32_t block = 0;; ++block) {
    const BlockNote& note = wait_for_note(shared, block);
    if (note.flags & kStop) return;
    const LaneRows rows(parameters, note);
    write_seen<Shape::kKeyGroups>(parameters, note, shared.seen[block % kSeenStages]);
    if constexpr (kOptions == Options::all)
      if (threadIdx.x % 32 == 0)
        shared.places[block % kSeenStages] = place_of(parameters, parameters.scores, note);
    const uint32_t stage = block % kStages;
    wait(shared.barriers.empty[stage], block / kStages % 2 ^ 1);
    rows.write(shared.rows[stage], note.rows);
    if constexpr (Shape::kSplit)
      arrive_as_warp(shared.barriers.rows_full[stage]);
    else
      arrive_as_warp(shared.barriers.dout_full[stage]);
  }
}

}  // namespace ringside::hopper::backward_detail
