"""One-line faults in the Hopper backward; see mutants_list.py. ./dev gpu-mutants plants them."""

from mutants_list import Mutant

LAUNCH = "optimized/attention/hopper/backward/backward.cu"
NOTES = "optimized/attention/hopper/backward/produce/notes.cuh"
ROWS = "optimized/attention/hopper/backward/produce/rows.cuh"
TILES = "optimized/attention/hopper/backward/produce/tiles.cuh"
LOADS = "optimized/attention/hopper/backward/shared/loads.cuh"
SEND = "optimized/attention/hopper/backward/send/results.cuh"
LINE = "optimized/attention/hopper/seen_line.h"
CONSUME = "optimized/attention/hopper/backward/consume/consumer.cuh"
KEY_GROUP = "optimized/attention/hopper/backward/consume/key_group.cuh"
TILE = "optimized/attention/hopper/backward/consume/tile.cuh"
RESULTS = "optimized/attention/hopper/backward/consume/results.cuh"
NOT_FINITE = "optimized/attention/hopper/backward/consume/not_finite.cuh"
WALK = "optimized/attention/hopper/backward/produce/query_walk.cuh"
TURN = "optimized/attention/hopper/machine/turn.h"
IN_PLACE = "optimized/program/in_place.cpp"
SPLIT = "optimized/attention/hopper/backward/consume/split.cuh"
SPLIT_PRODUCE = "optimized/attention/hopper/backward/produce/split_tiles.cuh"
DIMS = "optimized/attention/hopper/backward/shared/dims.h"
AHEAD = "optimized/attention/hopper/backward/consume/ahead.cuh"
HALVES = "optimized/attention/hopper/backward/consume/halves.cuh"
ROUNDS = "optimized/attention/hopper/backward/send/rounds.cuh"

MUTANTS_OF_HOPPER_BACKWARD = [
    Mutant(
        "hopper: query boxes are not clipped where their segment ends",
        LOADS,
        "ragged_box(panel * kPanelColumns, note.head, note.row, note.rows), full);",
        "ragged_box(panel * kPanelColumns, note.head, note.row, kQueries), full);",
    ),
    Mutant(
        "hopper: sums of dq are not clipped where their segment ends",
        SEND,
        "ragged_box(columns.first + panel * 32, note.head, note.row, note.rows),",
        "ragged_box(columns.first + panel * 32, note.head, note.row, kQueries),",
    ),
    Mutant(
        "hopper: both groups add dq to the same columns",
        SEND,
        "note, Shape::dq_columns(group, 0), tile,",
        "note, Shape::dq_columns(0, 0), tile,",
    ),
    Mutant(
        "hopper: all query heads of a group are the first",
        NOTES,
        "note.head = at.head();",
        "note.head = query_heads_of(p.shape, entry.head).begin;",
    ),
    Mutant(
        "hopper: a block that not every row sees counts as clear",
        ROWS,
        "clear = __reduce_and_sync(kEveryLane, clear);",
        "clear = 3;",
    ),
    Mutant(
        "hopper: the queue of the backward goes on where the last one ended",
        LAUNCH,
        "0, backward_workspace_bytes(a.shape), stream);",
        "0, 0, stream);",
    ),
    Mutant(
        "hopper: the first step adds dk and dv to what it finds",
        LAUNCH,
        "a.accumulate == Accumulate::start",
        "a.accumulate == Accumulate::merge",
    ),
    Mutant(
        "hopper: a key too many is seen",
        TILE,
        ">= unsigned(seen.y)) score",
        "> unsigned(seen.y)) score",
    ),
    Mutant(
        "hopper: d(scores) are stored without their swizzle",
        TILE,
        "(first ^ (first_slice + k) * 32,",
        "(first + (first_slice + k) * 32,",
    ),
    Mutant(
        "hopper: d(weights) begin with delta, not with what is taken off",
        ROWS,
        "is_row ? -delta[i] : 0",
        "is_row ? delta[i] : 0",
    ),
    Mutant(
        "hopper: odd rows of dq take the columns of even ones",
        RESULTS,
        "const int other = n ^ 2;",
        "const int other = n;",
    ),
    Mutant(
        "hopper, asked ahead: d(scores) that the other group has not written count as written",
        KEY_GROUP,
        "has_ended(barriers().ds_full[before % 2], before / 2 % 2)",
        "has_ended(barriers().ds_full[before % 2], before / 2 % 2 ^ 1)",
    ),
    Mutant(
        "hopper, asked ahead: d(scores) have room where others are read",
        KEY_GROUP,
        "has_ended(barriers().ds_empty[block % 2], block / 2 % 2 ^ 1)",
        "has_ended(barriers().ds_empty[block % 2], block / 2 % 2)",
    ),
    Mutant(
        "hopper, asked ahead: dq have room where others have not left",
        KEY_GROUP,
        "has_ended(barriers().dq_empty[group], parity_of_place(turn()))",
        "has_ended(barriers().dq_empty[group], parity_of_place(turn() + 1))",
    ),
    Mutant(
        "hopper: dk goes without the scale",
        KEY_GROUP,
        "shape.head_dim_qk, scale(), dk, thread);",
        "shape.head_dim_qk, 1, dk, thread);",
    ),
    Mutant(
        "hopper: final dk and dv are not clipped where their segment ends",
        SEND,
        "note.key_row + first_key, keys),",
        "note.key_row + first_key, kGroupKeys),",
    ),
    Mutant(
        "hopper: both groups store their final dv at the first one's keys",
        SEND,
        "store_keys<kQueryPanel>(maps.dv, note, group * kGroupKeys, 0,",
        "store_keys<kQueryPanel>(maps.dv, note, 0, 0,",
    ),
    Mutant(
        "hopper: both groups store the first one's final dk",
        SEND,
        "shared_address(shared.k[stage]) + group * kGroupKeys * 128);",
        "shared_address(shared.k[stage]));",
    ),
    Mutant(
        "hopper: final dk are written over keys that the other group still multiplies",
        KEY_GROUP,
        "    wait(barriers().k_read, item >> kOddBit);\n",
        "",
    ),
    Mutant(
        "hopper: keys are loaded over final dk that have not left",
        SEND,
        "  commit_stores();\n  wait_until_read<0>();\n}",
        "  commit_stores();\n}",
    ),
    Mutant(
        "hopper: values are loaded over those of which gradients are still to come",
        KEY_GROUP,
        "if ((flags & kLast) != 0) arrive_as_warp(barriers().v_empty, thread);",
        "if ((flags & kFirst) != 0) arrive_as_warp(barriers().v_empty, thread);",
    ),
    Mutant(
        "hopper: an item's first block adds to the dk and dv of the one before",
        CONSUME,
        "multiply_queries<T, kLate>(dk, ds, q);",
        "multiply_queries<T>(dk, ds, q);",
    ),
    Mutant(
        "hopper: the parts of a key head's query heads overlap",
        NOTES,
        "return {all.begin + all.size() * part / p.head_parts,",
        "return {all.begin + all.size() * part / (p.head_parts + 1),",
    ),
    Mutant(
        "hopper: each part of a key head's query heads is a key head's",
        NOTES,
        "const int kv_head = entry.head / p.head_parts;",
        "const int kv_head = entry.head;",
    ),
    Mutant(
        "hopper: final dk goes without the scale",
        KEY_GROUP,
        "+ group * kGroupKeys * 128, dk, 0, scale(),",
        "+ group * kGroupKeys * 128, dk, 0, 1,",
    ),
    Mutant(
        "hopper: final dk and dv are staged without their swizzle",
        RESULTS,
        "(first ^ k % 4 * 32) +",
        "(first + k % 4 * 32) +",
    ),
    Mutant(
        "hopper: what rows see begins a key late",
        LINE,
        "begin = window.begin - first_key,",
        "begin = window.begin - first_key + 1,",
    ),
    Mutant(
        "hopper: dq of 64 columns is the first half twice",
        KEY_GROUP,
        "kQkPanels > 1 ? kKeyPanel : Shape::kDqColumns * 2;",
        "kQkPanels > 1 ? kKeyPanel : 0;",
    ),
    Mutant(
        "hopper: final dq of 64 columns lies over the other group's",
        KEY_GROUP,
        "+ dq_place, group * Shape::kDqColumns, dq",
        "+ dq_place, 0, dq",
    ),
    Mutant(
        "hopper: final dq of two half rows leaves before one of the groups has left its own",
        SEND,
        "for (Barrier& full : barriers.dq_full) wait(full, turn & 1);",
        "wait(barriers.dq_full[0], turn & 1);",
    ),
    Mutant(
        "hopper, ahead: scores of the next block are this one's",
        AHEAD,
        "start<false>(block + 1, scores, grads);",
        "start<false>(block, scores, grads);",
    ),
    Mutant(
        "hopper, ahead: scores of the next block are computed before its queries are there",
        AHEAD,
        "wait(barriers().q_full[(block + 1) % kStages], (block + 1) / kStages % 2);",
        "",
    ),
    Mutant(
        "hopper, ahead: gradients of pairs that are not seen stay",
        AHEAD,
        "if (!clear) hide_gradients(grads, scores);",
        "(void)clear;",
    ),
    Mutant(
        "hopper, ahead: delta is forgotten",
        AHEAD,
        "differentiate(grads, scores, minus_deltas);",
        "differentiate(grads, scores);",
    ),
    Mutant(
        "hopper, ahead: keys that are not finite are not there for the next block",
        AHEAD,
        "if ((before & kClear) == 0) this->item_keys().bring_again(shared.notes[block % kNotes]);",
        "",
    ),
    Mutant(
        "hopper, halves: scores of the second half are the first half's",
        HALVES,
        "tile_descriptor(shared_address(queries) + half * kHalf * 128),",
        "tile_descriptor(shared_address(queries)),",
    ),
    Mutant(
        "hopper, halves: weights of the second half are shifted as the first half's",
        HALVES,
        "load_of_queries(shifts, shared.rows[stage()].shift, thread, half * kHalf);",
        "load_of_queries(shifts, shared.rows[stage()].shift, thread);",
    ),
    Mutant(
        "hopper, halves: delta of the second half is the first half's",
        HALVES,
        "load_of_queries(minus_deltas, shared.rows[stage()].minus_delta, thread, half * kHalf);",
        "load_of_queries(minus_deltas, shared.rows[stage()].minus_delta, thread);",
    ),
    Mutant(
        "hopper, halves: the second half sees what the first half does",
        HALVES,
        "query = half * kHalf + place.column;",
        "query = place.column;",
    ),
    Mutant(
        "hopper, halves: d(scores) of the second half lie over the first half's",
        HALVES,
        "ds_place, ds, half * 2);",
        "ds_place, ds, 0);",
    ),
    Mutant(
        "hopper, halves: dk is summed over the first half's queries twice",
        HALVES,
        "tile_descriptor(shared_address(shared.q[stage()]) + rows, kQueryPanel));",
        "tile_descriptor(shared_address(shared.q[stage()]), kQueryPanel));",
    ),
    Mutant(
        "hopper, halves: gradients of pairs that are not seen stay",
        HALVES,
        "if (!clear) hide_gradients(grads, weights);",
        "(void)clear;",
    ),
    Mutant(
        "hopper, halves: queries that are not finite stay in the second half",
        HALVES,
        "group, thread, this->is_alone(flags), half * kHalf);",
        "group, thread, this->is_alone(flags), 0);",
    ),
    Mutant(
        "hopper, halves: queries that are not finite stay in the second panel",
        NOT_FINITE,
        "(panel < Shape::kQkPanels ? q + panel * kQueryPanel",
        "(panel < Shape::kQkPanels ? q",
    ),
    Mutant(
        "hopper, halves: d(scores) overwrite those of two blocks before",
        HALVES,
        "if (half == 0) wait(barriers().ds_empty[block % 2], block / 2 % 2 ^ 1);",
        "",
    ),
    Mutant(
        "hopper, halves: both groups compute the same half of dq's middle panel",
        DIMS,
        "return {kPanelColumns + group * kHalfPanel, kHalfPanel};",
        "return {kPanelColumns, kHalfPanel};",
    ),
    Mutant(
        "hopper, halves: final dq of the middle panel are one group's twice",
        HALVES,
        "dq_place, group * kHalfPanel, dq, scale(),",
        "dq_place, 0, dq, scale(),",
    ),
    Mutant(
        "hopper, halves: final dq leave before the other group has left its half",
        ROUNDS,
        "for (int group = 0; group < kGroups; ++group) wait_for(group);",
        "wait_for(0);",
    ),
    Mutant(
        "hopper, halves: final keys of the second group go to the first's",
        ROUNDS,
        "Shape::kInHalves ? group * kGroupKeys : 0, panel,",
        "0, panel,",
    ),
    Mutant(
        "hopper, halves: keys of the next item are loaded over this one's",
        TILES,
        "wait(barriers.k_empty[key_stage], item / kKeyStages % 2 ^ 1);",
        "if (kKeyStages > 1) wait(barriers.k_empty[key_stage], item / kKeyStages % 2 ^ 1);",
    ),
    Mutant(
        "hopper, passing: a block of which only the last rows see a group's keys is passed by",
        WALK,
        "of_lane_.begin >= end || begin_ >= of_lane_.end);",
        "of_lane_.begin > begin_ || begin_ >= of_lane_.end);",
    ),
    Mutant(
        "hopper, passing: a block of which only the first rows see a group's keys is passed by",
        WALK,
        "of_lane_.begin >= end || begin_ >= of_lane_.end);",
        "of_lane_.begin >= end || end > of_lane_.end);",
    ),
    Mutant(
        "hopper, passing: a block of which some rows see all keys counts as clear",
        WALK,
        "of_lane_.begin <= begin_ && end <= of_lane_.end",
        "of_lane_.begin <= begin_ && begin_ < of_lane_.end",
    ),
    Mutant(
        "hopper, passing: all keys are seen by who sees the first group's",
        WALK,
        "constexpr int kLastKey = 2 * kKeyGroups - 1;",
        "constexpr int kLastKey = 1;",
    ),
    Mutant(
        "hopper, passing: a group passes by the first blocks that the other one should",
        KEY_GROUP,
        "return (flags & kUnseen << group) != 0;",
        "return (flags & kUnseen << (1 - group)) != 0;",
    ),
    Mutant(
        "hopper, passing: the block behind one that is not seen is passed by",
        KEY_GROUP,
        "(flags & kNextUnseen << group.group) != 0)",
        "(flags & kUnseen << group.group) != 0)",
    ),
    Mutant(
        "hopper, passing: who passes by the first block does not wait for values",
        KEY_GROUP,
        "    if constexpr (!kLate) wait(barriers().v_full, item & 1);\n    const int before",
        "    const int before",
    ),
    Mutant(
        "hopper, passing: dv begin with what registers held",
        CONSUME,
        "clear_sums(dk), clear_sums(dv);",
        "clear_sums(dk);",
    ),
    Mutant(
        "hopper, passing: d(scores) of a block that is passed by are no zeros",
        CONSUME,
        "const uint32_t none[kQueries / 16][4] = {};",
        "const uint32_t none[kQueries / 16][4] = {{0x3f803f80}};",
    ),
    Mutant(
        "hopper, passing: d(scores) of the second half are no zeros",
        HALVES,
        "const uint32_t none[2][4] = {};",
        "const uint32_t none[2][4] = {{0, 0x3f803f80}};",
    ),
    Mutant(
        "hopper, passing: queries that are not finite are dropped with a group that passes by",
        KEY_GROUP,
        "return kMayPass<Shape, kDq> && (flags & kUnseen << (1 - group)) != 0;",
        "return false;",
    ),
    Mutant(
        "hopper, passing: who is alone drops a part of what is not finite",
        NOT_FINITE,
        "i = alone ? thread : group * kGroupThreads + thread; i <",
        "i = group * kGroupThreads + thread; i <",
    ),
    Mutant(
        "hopper, passing: keys that are not finite are not there behind a block that is passed by",
        CONSUME,
        "      hand_over_dq(dq, block - 1, turn());\n      if ((before & kClear) == 0) item_keys()",
        "      hand_over_dq(dq, block - 1, turn());\n      if (false) item_keys()",
    ),
    Mutant(
        "hopper, split: a group's second panel of dq is its first",
        SPLIT,
        "start_dq(dq, of_block, panel);",
        "start_dq(dq, of_block, kFirstPanel);",
    ),
    Mutant(
        "hopper, split: panels of dq go to the columns of the first",
        DIMS,
        "return {panel * kPanelColumns, panel < end_panel(group) ? kPanelColumns : 0};",
        "return {round * kPanelColumns, panel < end_panel(group) ? kPanelColumns : 0};",
    ),
    Mutant(
        "hopper, split: weights are written over those that the other group has not read",
        SPLIT,
        "wait(barriers().weights_empty, (block & 1) ^ 1);",
        "",
    ),
    Mutant(
        "hopper, split: weights are read before they are there",
        SPLIT,
        "wait(barriers().weights_full, block & 1);",
        "",
    ),
    Mutant(
        "hopper, split: gradients of pairs that are not seen stay",
        SPLIT,
        "if (!clear && __float_as_int(weights[i]) < 0) grad = 0;",
        "",
    ),
    Mutant(
        "hopper, split: dO is loaded over one that is in use",
        SPLIT_PRODUCE,
        "wait(barriers.dout_empty[dout_stage], block / kDoutStages % 2 ^ 1);",
        "",
    ),
    Mutant(
        "hopper, split: the second half of final dk or dv is the first",
        SPLIT,
        "stage_keys<T, 2, kQueryPanel>(tile, sum, panel,",
        "stage_keys<T, 2, kQueryPanel>(tile, sum, 0,",
    ),
    Mutant(
        "hopper, split: final dk goes without the scale",
        SPLIT,
        "stage_keys<T, 2, kQueryPanel>(tile, sum, panel, kOwnsDk ? scale() : 1, thread);",
        "stage_keys<T, 2, kQueryPanel>(tile, sum, panel, 1, thread);",
    ),
    Mutant(
        "hopper, split: keys that are not finite reach queries that do not see them",
        SPLIT,
        "      if ((before & kClear) == 0) item_keys().drop_not_finite();\n",
        "",
    ),
    Mutant(
        "hopper, split: queries that are not finite reach keys that do not see them",
        SPLIT,
        "    if ((flags & kClear) == 0)\n      drop_not_finite<T, Shape>",
        "    if (false)\n      drop_not_finite<T, Shape>",
    ),
    Mutant(
        "hopper: dq of a block of keys do not go on to the next one",
        NOTES,
        "parts_met >> part > 1 ? kCarried : 0",
        "parts_met >> part > 3 ? kCarried : 0",
    ),
    Mutant(
        "hopper: dq are final while a block of keys is still to come",
        NOTES,
        "(parts_met & ((1u << part) - 1)) != 0 ? kCarriedOn : 0",
        "(parts_met & (1u << part)) == 0 ? kCarriedOn : 0",
    ),
    Mutant(
        "hopper: dq on their way are asked for before they are in memory",
        SEND,
        "wait_until_stored<0>();  // what is asked for\n",
        "{}\n",
    ),
    Mutant(
        "hopper: dq on their way are brought to the first group's columns",
        SEND,
        "*next, Shape::dq_columns(group, 0), shared_address(shared.dq[group]),",
        "*next, Shape::dq_columns(0, 0), shared_address(shared.dq[group]),",
    ),
    Mutant(
        "hopper: an item's blocks of keys cut queries where each begins",
        WALK,
        "        of_lane_.begin -= of_lane_.begin % kQueries;\n",
        "",
    ),
    Mutant(
        "hopper: of a block of queries, the rows that see these keys alone are carried on",
        WALK,
        "of_lane_.end = min((of_lane_.end + kQueries - 1) / kQueries * kQueries, tokens);",
        "of_lane_.end = min(of_lane_.end, tokens);",
    ),
    Mutant(
        "hopper: what is carried is scaled twice",
        KEY_GROUP,
        "      by = 1;\n",
        "",
    ),
    Mutant(
        "hopper: of what is carried, odd rows get their neighbours' columns",
        RESULTS,
        ': "r"(odd ? from_odd : from_even)',
        ': "r"(from_even)',
    ),
    Mutant(
        "hopper: what rows see is counted from an item's first block of keys",
        ROWS,
        "return note.key_row - item.own.row;",
        "return item.begin;",
    ),
    Mutant(
        "hopper, in turn: items add to dq while the one before still does",
        TURN,
        "  return value == turn;\n",
        "  return value + 1 >= turn;\n",
    ),
    Mutant(
        "hopper, in turn: nobody waits for his turn",
        SEND,
        "    wait_for_turn(word, note.turn);\n",
        "",
    ),
    Mutant(
        "hopper, in turn: nobody lets the next one pass",
        SEND,
        "    let_next_pass(word, held_);\n",
        "",
    ),
    Mutant(
        "hopper, in turn: of two blocks, one lets nobody pass",
        SEND,
        "    let_next_pass(word, held_);\n",
        "    let_next_pass(word, nullptr);\n",
    ),
    Mutant(
        "hopper, in turn: an item of one block lets nobody pass before the next item",
        SEND,
        "if (word != nullptr && held_ == nullptr && !is_last)",
        "if (word != nullptr && held_ == nullptr)",
    ),
    Mutant(
        "hopper, in turn: heads pass each other's turns",
        SEND,
        "int64_t{note.row} * p_.shape.num_heads + note.head;",
        "int64_t{note.row} * p_.shape.num_heads;",
    ),
    Mutant(
        "hopper, in turn: turns are counted at the row that all blocks of 128 rows share",
        SEND,
        "return p_.turns + int64_t{note.row} *",
        "return p_.turns + int64_t{note.row / 128 * 128} *",
    ),
    Mutant(
        "hopper, in turn: items that a window hides are waited for",
        "optimized/tables/item_turns.h",
        "return begin / rows - (first > 0 ? first / rows : 0);",
        "return begin / rows;",
    ),
    Mutant(
        "hopper, in turn: items cut queries where each begins to be seen",
        WALK,
        "if (blocks_ != Blocks::of_item && threadIdx.x % 32 == 0) {",
        "if (blocks_ == Blocks::of_segment && threadIdx.x % 32 == 0) {",
    ),
    Mutant(
        "hopper, in turn: words hold anything at first",
        IN_PLACE,
        "turns_in_place, 0, bytes, on_.stream)",
        "turns_in_place, 0, 0, on_.stream)",
    ),
    Mutant(
        "hopper, in turn: the next one is let pass before sums are in memory",
        SEND,
        "    wait_until_stored<0>();\n    let_next_pass(word, held_);\n",
        "    let_next_pass(word, held_);\n    wait_until_stored<0>();\n",
    ),
    Mutant(
        "hopper, in turn: the last one does not wait for the sums that it is brought",
        SEND,
        "    turns.wait(*then);\n",
        "",
    ),
    Mutant(
        "hopper, in turn: the last one leaves its own dq alone",
        NOTES,
        "return others >> 1 ? kCarriedOn : others ? kCarried : 0;",
        "return others >> 1 ? kCarriedOn : 0;",
    ),
    Mutant(
        "hopper, in turn: those between are brought sums, too, and add these again",
        NOTES,
        "return others >> 1 ? kCarriedOn : others ? kCarried : 0;",
        "return (others >> 1 ? kCarriedOn : 0) | (others & 1 ? kCarried : 0);",
    ),
    Mutant(
        "hopper, in turn: the first block of all is not brought what others have added",
        SEND,
        "    if (is_brought(first))\n",
        "    if (false)\n",
    ),
    Mutant(
        "hopper, in turn: the first one adds to what the place of its sums holds",
        SEND,
        "in_turn ? note.turn > 0 : kDq == Dq::add",
        "in_turn || kDq == Dq::add",
    ),
    Mutant(
        "hopper backward: an item whose sums go elsewhere counts as one that was sent off",
        CONSUME,
        "if (kHasDq && (flags & kFinal) != 0) item ^=",
        "if (kHasDq) item ^=",
    ),
    Mutant(
        "hopper backward: final dk stay where K was",
        SEND,
        "if (with_keys) send_dk(",
        "if (with_keys && finals > items) send_dk(",
    ),
    Mutant(
        "hopper backward: an item's final dk are waited for as if all before it had had some",
        SEND,
        "note, stage, finals++);",
        "note, stage, items - 1);",
    ),
    Mutant(
        "hopper backward: keys of items to which nobody adds go to the sums of others",
        NOTES,
        "leaves_final(item, p.has_final) ? kFinal : 0",
        "false ? kFinal : 0",
    ),
    Mutant(
        "hopper, first keys: others add to dq before these have stored",
        SEND,
        "if ((note.flags & kStores) == 0) wait_for_turn(word_of_first(p, note), 1);",
        "",
    ),
    Mutant(
        "hopper, first keys: others are told before dq is in memory",
        SEND,
        "  wait_until_stored<0>();\n  let_next_pass(word_of_first(p, note), nullptr);\n",
        "  let_next_pass(word_of_first(p, note), nullptr);\n  wait_until_stored<0>();\n",
    ),
    Mutant(
        "hopper, first keys: these add to what is there",
        SEND,
        "        send_queries(false);",
        "        send_queries(true);",
    ),
    Mutant(
        "hopper, first keys: these add to what is there, where dq leave in rounds",
        ROUNDS,
        "kDq == Dq::add && !(kFirstStores && (note.flags & kStores) != 0);",
        "kDq == Dq::add;",
    ),
    Mutant(
        "hopper, first keys: others store, too",
        NOTES,
        "p.first_stored != nullptr && item.begin == 0 ? kStores",
        "p.first_stored != nullptr ? kStores",
    ),
    Mutant(
        "hopper, first keys: rows that meet no keys keep what was there",
        IN_PLACE,
        "!summed_ || in_turn_ || first_stores_, on_.stream);",
        "!summed_ || in_turn_, on_.stream);",
    ),
]
