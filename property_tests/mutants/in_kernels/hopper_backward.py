"""One-line faults in the Hopper backward; see mutants_list.py. ./dev gpu-mutants plants them."""

from mutants_list import Mutant

LAUNCH = "optimized/attention/hopper/backward/backward.cu"
NOTES = "optimized/attention/hopper/backward/produce/notes.cuh"
ROWS = "optimized/attention/hopper/backward/produce/rows.cuh"
LOADS = "optimized/attention/hopper/backward/shared/loads.cuh"
SEND = "optimized/attention/hopper/backward/send/results.cuh"
LINE = "optimized/attention/hopper/seen_line.h"
CONSUME = "optimized/attention/hopper/backward/consume/consumer.cuh"
KEY_GROUP = "optimized/attention/hopper/backward/consume/key_group.cuh"
TILE = "optimized/attention/hopper/backward/consume/tile.cuh"
RESULTS = "optimized/attention/hopper/backward/consume/results.cuh"
NOT_FINITE = "optimized/attention/hopper/backward/consume/not_finite.cuh"
WALK = "optimized/attention/hopper/backward/produce/query_walk.cuh"
TILES = "optimized/attention/hopper/backward/produce/tiles.cuh"
LEAVING_DV = "optimized/attention/hopper/backward/produce/leaving_dv.cuh"
STORES = "optimized/attention/hopper/backward/shared/stores.cuh"
CAPPED = "optimized/attention/hopper/backward/consume/capped.cuh"
HALVES = "optimized/attention/hopper/backward/consume/halves.cuh"

MUTANTS_OF_HOPPER_BACKWARD = [
    Mutant(
        "hopper, first keys: the first numbers belong to blocks that may not have begun",
        NOTES,
        "bool first_store() const { return p_.first_stored != nullptr; }",
        "bool first_store() const { return false; }",
    ),
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
        ">= unsigned(seen.y)) visit",
        "> unsigned(seen.y)) visit",
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
        STORES,
        "note.key_row + first_key, keys),",
        "note.key_row + first_key, kGroupKeys),",
    ),
    Mutant(
        "hopper: both groups store their final dv at the first one's keys",
        LEAVING_DV,
        "shared_.notes[block % kNotes], group * kGroupKeys, 0,",
        "shared_.notes[block % kNotes], 0, 0,",
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
        "    wait(barriers().k_read, item & 1);\n",
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
        "hopper backward: items that leave no final results do not count as others do",
        KEY_GROUP,
        "    else\n      pass_final_results();\n",
        "",
    ),
    Mutant(
        "hopper backward: who leaves no final results goes on before others have counted",
        KEY_GROUP,
        "    if (kHasDq && sends_keys(parameters)) wait_until_all_pass();\n",
        "",
    ),
    Mutant(
        "hopper backward: nobody asks whether groups have counted for an item that leaves no dk",
        SEND,
        "      else\n        pass_dk(shared, items - 1);\n",
        "",
    ),
    Mutant(
        "hopper backward: final dk stay where K was",
        SEND,
        "if (with_keys)\n        send_dk(",
        "if (with_keys && items == 0)\n        send_dk(",
    ),
    Mutant(
        "hopper backward: an item's final dk are waited for as if there were one place for them",
        SEND,
        "dk_full[stage][group], item / kStages & 1);",
        "dk_full[stage][group], item & 1);",
    ),
    Mutant(
        "hopper backward: keys of items to which nobody adds go to the sums of others",
        NOTES,
        "leaves_final(item, p.has_final) ? kFinal : 0",
        "false ? kFinal : 0",
    ),
    Mutant(
        "hopper: final dv are written over rows that the other group still multiplies",
        KEY_GROUP,
        "    wait(barriers().rows_read, item & 1);\n",
        "",
    ),
    Mutant(
        "hopper: rows are loaded over final dv that have not left",
        LEAVING_DV,
        "      wait_until_read<0>();\n",
        "",
    ),
    Mutant(
        "hopper: rows are loaded over those that final dv will replace",
        KEY_GROUP,
        "leaves_rows<Shape, kDq>(flags) ? barriers().rows_read",
        "leaves_rows<Shape, kDq>(0) ? barriers().rows_read",
    ),
    Mutant(
        "hopper: final dv of an item are taken for those of the next",
        LEAVING_DV,
        "expected_ >> (kOdd + stage) & 1);",
        "0);",
    ),
    Mutant(
        "hopper: final dv of the last item stay where its rows were",
        TILES,
        "block < kStages ? 0 : block - kStages + 1;",
        "block < kStages ? 0 : block;",
    ),
    Mutant(
        "hopper: final dv of an item of one block stay, of a block of threads that has no other",
        TILES,
        "block < kStages ? 0 : block - kStages + 1;",
        "block - kStages + 1;",
    ),
    Mutant(
        "hopper: final dv leave before those of the second group are there",
        "optimized/attention/hopper/backward/shared/blocks.cuh",
        "for (Barrier& barrier : dv_full) init(barrier, kAll);",
        "for (Barrier& barrier : dv_full) init(barrier, kGroup);",
    ),
    Mutant(
        "hopper, capped: half of a lane's scores say that all of a warp's are near",
        CAPPED,
        "fmaxf(largest[0], largest[1])",
        "largest[0]",
    ),
    Mutant(
        "hopper, capped: each warp's scores are near",
        CAPPED,
        "return __all_sync(~0u, near.has(",
        "return __any_sync(~0u, near.has(",
    ),
    Mutant(
        "hopper, capped: the derivative is left out",
        CAPPED,
        "grads[i] *= __saturatef(fmaf(-tanh, tanh, 1));",
        "",
    ),
    Mutant(
        "hopper, capped: scores at the cap have a gradient of a last place",
        "optimized/attention/hopper/near_softcap.h",
        "cap * nearest < 1 ? std::nextafter(nearest, INFINITY) : nearest",
        "nearest",
    ),
    Mutant(
        "hopper, capped: scores at the cap have one of a last place below zero",
        CAPPED,
        "__saturatef(fmaf(-tanh, tanh, 1))",
        "fmaf(-tanh, tanh, 1)",
    ),
    Mutant(
        "hopper, capped: scores beyond are bent as near ones",
        CAPPED,
        "if_negative(__float_as_int(beyond[i]), near[i], scores[i])",
        "near[i]",
    ),
    Mutant(
        "hopper, capped: near scores beside some beyond are bent by exponents",
        CAPPED,
        "if_negative(__float_as_int(beyond[i]), near[i], scores[i])",
        "if_negative(0, near[i], scores[i])",
    ),
    Mutant(
        "hopper, capped: the first scores alone are bent beside a low cap",
        CAPPED,
        "    bend_all([&](float* some) { bend_far(some, n.far); });",
        "    bend_far(scores, n.far);",
    ),
    Mutant(
        "hopper, capped: far scores are tanh, not logits",
        CAPPED,
        "bend(scores[i], far.power, far.cap)",
        "bend(scores[i], far.power)",
    ),
    Mutant(
        "hopper, capped: both of two queries have the first one's exponent",
        CAPPED,
        "(i % 2 == 0 ? shift.x : shift.y)",
        "shift.x",
    ),
    Mutant(
        "hopper, capped: tanh are in units of natural logits",
        "optimized/attention/hopper/near_softcap.h",
        "inverse(static_cast<float>(1.4426950408889634 * softcap))",
        "inverse(static_cast<float>(softcap))",
    ),
    Mutant(
        "hopper, capped: so are scores with ALiBi",
        "optimized/attention/hopper/score_policy.cuh",
        "bends && alibi_slopes == nullptr && !drops",
        "bends && !drops",
    ),
    Mutant(
        "hopper, told: scores tell nothing of queries",
        KEY_GROUP,
        "if ((flags & kClear) == 0) told = told_by(scores);",
        "",
    ),
    Mutant(
        "hopper, told: gradients tell nothing of dout",
        KEY_GROUP,
        "    told += told_by(grads);\n",
        "",
    ),
    Mutant(
        "hopper, told: scores tell of half of the keys",
        KEY_GROUP,
        "return told + scores[2];",
        "return told;",
    ),
    Mutant(
        "hopper, told: of keys, warps look at the first one's",
        "optimized/attention/hopper/backward/consume/item_keys.cuh",
        " + static_cast<int>(thread) / 32 * kOwnRows;",
        ";",
    ),
    Mutant(
        "hopper, told: of queries, half a tile is looked at",
        NOT_FINITE,
        "i < decltype(bytes)::value / 16; i += 32)",
        "i < decltype(bytes)::value / 32; i += 32)",
    ),
]
