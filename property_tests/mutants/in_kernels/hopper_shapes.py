"""One-line faults in how the Hopper backward goes about other head dimensions than 128."""

from mutants_list import Mutant

TILES = "optimized/attention/hopper/backward/produce/tiles.cuh"
NOT_FINITE = "optimized/attention/hopper/backward/consume/not_finite.cuh"
SPLIT = "optimized/attention/hopper/backward/consume/split.cuh"
SPLIT_PRODUCE = "optimized/attention/hopper/backward/produce/split_tiles.cuh"
DIMS = "optimized/attention/hopper/backward/shared/dims.h"
AHEAD = "optimized/attention/hopper/backward/consume/ahead.cuh"
HALVES = "optimized/attention/hopper/backward/consume/halves.cuh"
ROUNDS = "optimized/attention/hopper/backward/send/rounds.cuh"

MUTANTS_OF_HOPPER_SHAPES = [
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
        "    this->hide_unseen(flags, grads, scores, told);\n",
        "",
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
        "                                              half * kHalf};",
        "                                              0};",
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
        "    if ((flags & kClear) == 0) {\n      const QueryTiles",
        "    if (false) {\n      const QueryTiles",
    ),
    Mutant(
        "hopper, halves, told: gradients tell nothing of dout",
        HALVES,
        "    if ((flags & kClear) == 0) told += told_by(grads);\n",
        "",
    ),
]
