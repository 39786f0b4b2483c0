// The warp of the producer group that sends off what the consumers leave: dq, and final dk. Of
// final dv see produce/leaving_dv.cuh.
#pragma once

#include "optimized/attention/hopper/backward/shared/notes.cuh"
#include "optimized/attention/hopper/backward/shared/stores.cuh"
#include "optimized/attention/hopper/machine/turn.h"

namespace ringside::hopper::backward_detail {

// visit(box, place in the tile) for the panels of a block's dq in float32 that are a group's.
template <typename Visit>
__device__ inline void for_each_panel_of_sums(const BlockNote& note, Columns columns, uint32_t tile,
                                              Visit visit) {
#pragma unroll
  for (int panel = 0; panel < columns.number / 32; ++panel)
    visit(ragged_box(columns.first + panel * 32, note.head, note.row, note.rows),
          tile + panel * kQueryPanel);
}

// Of a block's dq, a group's columns. adds_to: sums go to those that are there, and are not the
// first.
template <typename Shape, Dq kDq>
__device__ inline void store_queries(const Maps& maps, const BlockNote& note, Columns columns,
                                     uint32_t tile, bool adds_to = adds(kDq)) {
  const auto send_sums = [&](const CUtensorMap& map) {
    for_each_panel_of_sums(note, columns, tile, [&](const BoxCoordinates& box, uint32_t from) {
      if (adds_to)
        add_box(map, box, from);
      else
        store_box(map, box, from);
    });
  };
  if constexpr (adds(kDq)) return send_sums(maps.dq);
  if constexpr (kMayCarry<Shape, kDq>)
    if (note.flags & kCarriedOn) return send_sums(maps.carried);
  store_box(maps.dq, ragged_box(columns.first, note.head, note.row, note.rows), tile);
}

// Lets a group leave something in its place: behind dq that are carried to this block, if it is
// given and there are some, to which the group adds its own.
template <typename Shape>
__device__ inline void free_place(const Maps& maps, PlainShared<Shape>& shared, int group,
                                  const BlockNote* next) {
  Barrier& empty = shared.barriers.dq_empty[group];
  if (next == nullptr || (next->flags & kCarried) == 0) return arrive(empty);
  arrive_and_expect(empty, Shape::kDqTile);
  for_each_panel_of_sums(
      *next, Shape::dq_columns(group, 0), shared_address(shared.dq[group]),
      [&](const BoxCoordinates& box, uint32_t to) { load_box(to, maps.carried, box, empty); });
}

// Whose dq are there before an item's: nobody's as far as is known, so that all add to zeros;
// others', in the order of their turns; or those of the item that begins the document's keys, which
// has stored them.
enum class Before : uint8_t { zeros, turns, first_keys };

// The word that says that the item which begins this one's document has stored all of its dq.
__device__ inline unsigned* word_of_first(const Parameters& p, const BlockNote& note) {
  const int64_t seq = p.work.items[note.item].own.seq;
  return p.first_stored + seq * p.order.heads + note.entry_head;
}
// Before an item's first dq are sent, and behind its last.
__device__ inline void wait_for_first(const Parameters& p, const BlockNote& note) {
  if ((note.flags & kStores) == 0) wait_for_turn(word_of_first(p, note), 1);
}
__device__ inline void tell_others(const Parameters& p, const BlockNote& note) {
  if ((note.flags & kStores) == 0) return;
  wait_until_stored<0>();
  let_next_pass(word_of_first(p, note));
}

// Final dk of an item, behind so many, which the groups leave where its K was.
template <typename Shape>
__device__ inline void send_dk(const Parameters& parameters, PlainShared<Shape>& shared,
                               const BlockNote& note, uint32_t item) {
  constexpr uint32_t kStages = Shape::kKeyStages;
  const uint32_t stage = item % kStages;
#pragma unroll 1
  for (int group = 0; group < kGroups; ++group) {
    wait(shared.barriers.dk_full[stage][group], item / kStages & 1);
    show_to_async();
    store_keys<Shape::kKeyPanel>(parameters.maps.dk, note, group * kGroupKeys, 0, Shape::kQkPanels,
                                 shared_address(shared.k[stage]) + group * kGroupKeys * 128);
  }
  commit_stores();
  wait_until_read<0>();
}

// Of an item that leaves none, which counts, too.
template <typename Shape>
__device__ inline void pass_dk(PlainShared<Shape>& shared, uint32_t item) {
  constexpr uint32_t kStages = Shape::kKeyStages;
  for (Barrier& full : shared.barriers.dk_full[item % kStages]) wait(full, item / kStages & 1);
}

// Sends off what the groups have left of dq, and of an item's final dk, until they have nothing
// more; by one thread. Where items take turns, it tells who lets the next one pass
// (produce/passing.cuh) when a block's dq are sent; the last of all is brought what the others have
// added.
template <Dq kDq, Before kBefore, typename Shape>
__device__ __forceinline__ void send_all(const Parameters& parameters, PlainShared<Shape>& shared) {
  constexpr bool in_turn = kBefore == Before::turns, kFirstStores = kBefore == Before::first_keys;
  auto& barriers = shared.barriers;
  const Maps& maps = parameters.maps;
  const bool sends = sends_keys(parameters);
  uint32_t items = 0;  // that have begun
  uint32_t turn = 0;   // what was sent before, of each group
  const auto is_brought = [&](const BlockNote* note) {
    return kMayCarry<Shape, kDq> && in_turn && note != nullptr && (note->flags & kCarried) != 0;
  };
  const auto bring = [&](const BlockNote* then) {
    wait_for_turn(word_of_turns(parameters, *then), then->turn);
#pragma unroll 1
    for (int group = 0; group < kGroups; ++group) free_place<Shape>(maps, shared, group, then);
  };
  const auto next_of = [](const BlockNote& behind) {
    return (behind.flags & kStop) == 0 ? &behind : nullptr;
  };
  if constexpr (kMayCarry<Shape, kDq>) {
    const BlockNote* first = next_of(wait_for_note(shared, 0));
    if (is_brought(first))
      bring(first);
    else
      for (Barrier& empty : barriers.dq_empty) arrive(empty);
  }
  for (uint32_t block = 0;; ++block) {
    if (in_turn)
      wait_for_note(shared, block);
    else
      wait(barriers.dq_full[0], turn & 1);
    const BlockNote& note = shared.notes[block % kNotes];
    if (note.flags & kStop) return;
    if (note.flags & kFirst) {
      ++items;
      if constexpr (kFirstStores) wait_for_first(parameters, note);
    }
    const bool is_last = (note.flags & kLast) != 0,
               with_keys = is_last && (note.flags & kFinal) != 0;
    const BlockNote* next = nullptr;
    if constexpr (kMayCarry<Shape, kDq>) next = next_of(wait_for_note(shared, block + 1));
    // Both groups' together: each has a block's time until it needs its place again.
    const auto send_in_turn = [&](auto start) {
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        wait(barriers.dq_full[group], turn & 1);
        show_to_async();
        start(group, shared_address(shared.dq[group]));
        commit_stores();
      }
      wait_until_read<1>();
      arrive(barriers.dq_empty[0]);
      wait_until_read<0>();
      arrive(barriers.dq_empty[1]);
      ++turn;
    };
    const auto send = [&](const BlockNote* then, auto start) {
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        wait(barriers.dq_full[group], turn & 1);
        show_to_async();  // what four warps have written, who need not wait for the fence
        start(group, shared_address(shared.dq[group]));
        commit_stores();
        wait_until_read<0>();
        if (is_brought(then)) continue;  // when it is this item's turn
        if (kMayCarry<Shape, kDq> && !in_turn && then != nullptr && (then->flags & kCarried))
          wait_until_stored<0>();  // what is asked for
        free_place<Shape>(maps, shared, group, then);
      }
      ++turn;
    };
    if constexpr (Shape::kQkPanels == 1 && kDq == Dq::store) {
      // Both halves of the rows lie in the first group's place.
      for (Barrier& full : barriers.dq_full) wait(full, turn & 1);
      show_to_async();
      store_queries<Shape, kDq>(maps, note, Shape::dq_columns(0, 0), shared_address(shared.dq[0]));
      commit_stores();
      wait_until_read<0>();
      arrive(barriers.dq_empty[0]), arrive(barriers.dq_empty[1]);
      ++turn;
    } else {
      if (in_turn && !is_brought(&note))  // before there is dq
        wait_for_turn(word_of_turns(parameters, note), note.turn);
      const auto send_queries = [&](bool adds_to) {
        const auto start = [&](int group, uint32_t tile) {
          store_queries<Shape, kDq>(maps, note, Shape::dq_columns(group, 0), tile, adds_to);
        };
        if constexpr (in_turn && !kMayCarry<Shape, kDq>)
          send_in_turn(start);
        else
          send(next, start);
      };
      if (kFirstStores && (note.flags & kStores) != 0)
        send_queries(false);
      else
        send_queries(in_turn ? note.turn > 0 : adds(kDq));
      if constexpr (in_turn) {
        wait_until_stored<0>();
        arrive(barriers.dq_sent[block % Barriers<Shape>::kSent]);
      }
    }
    if (is_last && sends) {  // for which nobody waits for turns: behind dq nobody reads K
      if (with_keys)
        send_dk(parameters, shared, note, items - 1);
      else
        pass_dk(shared, items - 1);
      arrive(barriers.k_empty[(items - 1) % Shape::kKeyStages]);
    }
    if constexpr (kFirstStores)
      if (is_last) tell_others(parameters, note);
    if (is_brought(next)) bring(next);
  }
}
template <Dq kDq, typename Shape>
__device__ void send_results(const Parameters& parameters, PlainShared<Shape>& shared) {
  // Code of their own: groups wait for whoever sends, who is quicker with nothing to ask.
  if constexpr (kTakesTurns<Shape, kDq>)
    if (parameters.turns != nullptr) return send_all<kDq, Before::turns>(parameters, shared);
  if constexpr (adds(kDq))
    if (parameters.first_stored != nullptr)
      return send_all<kDq, Before::first_keys>(parameters, shared);
  send_all<kDq, Before::zeros>(parameters, shared);
}

}  // namespace ringside::hopper::backward_detail
