// The warp of the producer group that sends off what the consumers leave: dq, and final dk and dv.
#pragma once

#include "optimized/attention/hopper/backward/backward_produce.cuh"
#include "optimized/attention/hopper/machine/turn.h"

namespace ringside::hopper::backward_detail {

// Panels of final dk or dv, of 64 keys of an item from `first_key` on, so many bytes apart.
template <int kBytes>
__device__ inline void store_keys(const CUtensorMap& map, const BlockNote& note, int first_key,
                                  int first_panel, int panels, uint32_t tile) {
  const int keys = note.keys - first_key;
  if (keys <= 0) return;
#pragma unroll
  for (int panel = 0; panel < panels; ++panel)
    store_box(map,
              ragged_box((first_panel + panel) * kPanelColumns, note.kv_head,
                         note.key_row + first_key, keys),
              tile + panel * kBytes);
}

// visit(box, place in the tile) for the panels of a block's dq in float32 that are a group's.
template <typename Shape, typename Visit>
__device__ inline void for_each_panel_of_sums(const BlockNote& note, int first_column,
                                              uint32_t tile, Visit visit) {
#pragma unroll
  for (int panel = 0; panel < Shape::kDqColumns / 32; ++panel)
    visit(ragged_box(first_column + panel * 32, note.head, note.row, note.rows),
          tile + panel * kQueryPanel);
}

// Of a block's dq, a group's columns. is_first: there are no sums yet to which they are added.
template <typename Shape, Dq kDq>
__device__ inline void store_queries(const Maps& maps, const BlockNote& note, int first_column,
                                     uint32_t tile, bool is_first = false) {
  if constexpr (kDq == Dq::add) {
    for_each_panel_of_sums<Shape>(note, first_column, tile,
                                  [&](const BoxCoordinates& box, uint32_t from) {
                                    if (is_first)
                                      store_box(maps.dq, box, from);
                                    else
                                      add_box(maps.dq, box, from);
                                  });
    return;
  }
  if constexpr (kMayCarry<Shape, kDq>)
    if (note.flags & kCarriedOn)
      return for_each_panel_of_sums<Shape>(
          note, first_column, tile,
          [&](const BoxCoordinates& box, uint32_t from) { store_box(maps.carried, box, from); });
  store_box(maps.dq, ragged_box(first_column, note.head, note.row, note.rows), tile);
}

// Lets a group leave something in its place: behind dq that are carried to this block, if it is
// given and there are some, to which the group adds its own.
template <typename Shape>
__device__ inline void free_place(const Maps& maps, PlainShared<Shape>& shared, int group,
                                  const BlockNote* next) {
  Barrier& empty = shared.barriers.dq_empty[group];
  if (next == nullptr || (next->flags & kCarried) == 0) return arrive(empty);
  wait_until_stored<0>();  // what is asked for
  arrive_and_expect(empty, Shape::kDqTile);
  for_each_panel_of_sums<Shape>(
      *next, group * Shape::kDqColumns, shared_address(shared.dq[group]),
      [&](const BoxCoordinates& box, uint32_t to) { load_box(to, maps.carried, box, empty); });
}

// An item's final dk, which the groups leave where K was.
template <typename Shape>
__device__ inline void send_dk(const Parameters& parameters, PlainShared<Shape>& shared,
                               const BlockNote& note, uint32_t item) {
  const uint32_t stage = item % Shape::kKeyStages;
#pragma unroll 1
  for (int group = 0; group < kGroups; ++group) {
    wait(shared.barriers.dk_full[group], item & 1);
    show_to_async();
    store_keys<Shape::kKeyPanel>(parameters.maps.dk, note, group * kGroupKeys, 0, Shape::kQkPanels,
                                 shared_address(shared.k[stage]) + group * kGroupKeys * 128);
  }
  commit_stores();
  wait_until_read<0>();
  arrive(shared.barriers.k_empty[stage]);
}

// Sends off what the groups have left of dq, and of an item's final dk and dv, until they have
// nothing more; by one thread. A group's last dq comes behind dv. Where items take turns, those
// behind this one are let pass, two blocks at a time, when all of its dq is in memory, for which no
// group waits. Who has not let pass yet waits for none of them, but for items before its own.
template <Dq kDq, typename Shape>
__device__ void send_results(const Parameters& parameters, PlainShared<Shape>& shared) {
  auto& barriers = shared.barriers;
  const Maps& maps = parameters.maps;
  const bool in_turn = kTakesTurns<Shape, kDq> && parameters.turns != nullptr;
  uint32_t items = 0, turn = 0;  // items that have begun; what was sent before, of each group
  unsigned* held = nullptr;      // word of a block that is sent, at which none was let pass
  for (uint32_t block = 0;; ++block) {
    if (in_turn)
      wait_for_note(shared, block);
    else
      wait(barriers.dq_full[0], turn & 1);
    const BlockNote& note = shared.notes[block % kNotes];
    if (note.flags & kStop) return;
    if (note.flags & kFirst) ++items;
    const bool with_keys = parameters.is_final && (note.flags & kLast);
    const BlockNote* next = nullptr;  // the next block, if its dq is the next thing to come
    if constexpr (kMayCarry<Shape, kDq>) {
      const BlockNote& behind = wait_for_note(shared, block + 1);
      if ((behind.flags & (kStop | kLast)) == 0) next = &behind;
    }
    const auto send = [&](const BlockNote* then, auto start) {
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        wait(barriers.dq_full[group], turn & 1);
        show_to_async();  // what four warps have written, who need not wait for the fence
        start(group, shared_address(shared.dq[group]));
        commit_stores();
        wait_until_read<0>();
        free_place<Shape>(maps, shared, group, then);
      }
      ++turn;
    };
    if (with_keys)
      send(kMayCarry<Shape, kDq> ? &note : nullptr, [&](int group, uint32_t tile) {
        store_keys<kQueryPanel>(maps.dv, note, group * kGroupKeys, 0, Shape::kVPanels, tile);
      });
    if constexpr (Shape::kQkPanels == 1 && kDq == Dq::store) {
      // Both halves of the rows lie in the first group's place.
      for (Barrier& full : barriers.dq_full) wait(full, turn & 1);
      show_to_async();
      store_queries<Shape, kDq>(maps, note, 0, shared_address(shared.dq[0]));
      commit_stores();
      wait_until_read<0>();
      arrive(barriers.dq_empty[0]), arrive(barriers.dq_empty[1]);
      ++turn;
    } else {
      unsigned* passed = nullptr;
      if (in_turn) {  // asked before there is dq
        passed = parameters.turns + int64_t{note.row} * parameters.shape.num_heads + note.head;
        wait_for_turn(passed, note.turn);
      }
      send(next, [&](int group, uint32_t tile) {
        store_queries<Shape, kDq>(maps, note, group * Shape::kDqColumns, tile,
                                  in_turn && note.turn == 0);
      });
      if (in_turn && held == nullptr && (note.flags & kLast) == 0) {
        held = passed;
      } else if (in_turn) {
        wait_until_stored<0>();
        let_next_pass(passed, held);
        held = nullptr;
      }
    }
    if (with_keys) send_dk(parameters, shared, note, items - 1);
  }
}

}  // namespace ringside::hopper::backward_detail
