"""One-line faults in the Hopper backward; see mutants_list.py. ./dev gpu-mutants plants them."""

from mutants_list import Mutant

LAUNCH = "optimized/attention/hopper/backward/backward.cu"
PRODUCE = "optimized/attention/hopper/backward/backward_produce.cuh"
BAND = "optimized/attention/hopper/band.h"
CONSUME = "optimized/attention/hopper/backward/backward_consume.cuh"
TILES = "optimized/attention/hopper/backward/backward_tiles.cuh"

MUTANTS_OF_HOPPER_BACKWARD = [
    Mutant(
        "hopper: query boxes are not clipped where their segment ends",
        PRODUCE,
        "ragged_box(panel * kPanelColumns, note.head, note.row, note.rows), full);",
        "ragged_box(panel * kPanelColumns, note.head, note.row, kQueries), full);",
    ),
    Mutant(
        "hopper: sums of dq are not clipped where their segment ends",
        PRODUCE,
        "ragged_box(group * 64 + panel * 32, note.head, note.row, note.rows),",
        "ragged_box(group * 64 + panel * 32, note.head, note.row, kQueries),",
    ),
    Mutant(
        "hopper: both groups add dq to the same columns",
        PRODUCE,
        "ragged_box(group * 64 + panel * 32, note.head",
        "ragged_box(panel * 32, note.head",
    ),
    Mutant(
        "hopper: all query heads of a group are the first",
        PRODUCE,
        "note.head = at.head();",
        "note.head = query_heads_of(p.shape, entry.head).begin;",
    ),
    Mutant(
        "hopper: a block that not every row sees counts as clear",
        PRODUCE,
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
        TILES,
        ">= unsigned(seen.y)) score",
        "> unsigned(seen.y)) score",
    ),
    Mutant(
        "hopper: d(scores) are stored without their swizzle",
        TILES,
        "((2 * k + lane / 16) ^ (lane % 8)) * 16",
        "(2 * k + lane / 16) * 16",
    ),
    Mutant(
        "hopper: odd rows of dq take the columns of even ones",
        TILES,
        "const int other = n ^ 2;",
        "const int other = n;",
    ),
    Mutant(
        "hopper: dk goes without the scale",
        CONSUME,
        "shape.head_dim_qk, scale(), dk, thread);",
        "shape.head_dim_qk, 1, dk, thread);",
    ),
    Mutant(
        "hopper: final dk and dv are not clipped where their segment ends",
        PRODUCE,
        "note.key_row + group * kGroupKeys, keys)",
        "note.key_row + group * kGroupKeys, kGroupKeys)",
    ),
    Mutant(
        "hopper: both groups store their final dk and dv at the first one's keys",
        PRODUCE,
        "note.kv_head, note.key_row + group * kGroupKeys, keys)",
        "note.kv_head, note.key_row, keys)",
    ),
    Mutant(
        "hopper: final dk goes without the scale",
        CONSUME,
        "hand_over_keys(dk, scale(), turn + 2);",
        "hand_over_keys(dk, 1, turn + 2);",
    ),
    Mutant(
        "hopper: final dk and dv are staged without their swizzle",
        TILES,
        "((2 * (k % 4) + lane / 16) ^ (lane % 8)) * 16",
        "(2 * (k % 4) + lane / 16) * 16",
    ),
    Mutant(
        "hopper: a band begins a key late",
        BAND,
        "first = window.begin - first_key,",
        "first = window.begin - first_key + 1,",
    ),
]
