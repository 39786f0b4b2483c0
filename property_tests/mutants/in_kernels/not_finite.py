"""One-line faults in what keeps NaN and infinities on the GPU from those who do not see them."""

from mutants_list import Mutant

F32 = "optimized/attention/f32/common.cuh"
F32_FORWARD = "optimized/attention/f32/forward.cu"
F32_BACKWARD = "optimized/attention/f32/backward.cu"
PAIRS = "optimized/attention/seen_pairs.cuh"
MMA_FORWARD = "optimized/attention/mma/forward.cu"
MMA_BACKWARD = "optimized/attention/mma/backward.cu"
MMA_QUERIES = "optimized/attention/mma/backward_queries.cuh"
SOFTMAX = "optimized/attention/mma/online_softmax.cuh"
PRODUCER = "optimized/attention/hopper/forward/producer.cuh"
HOPPER_BACKWARD = "optimized/attention/hopper/backward/consume/consumer.cuh"
HOPPER_TILE = "optimized/attention/hopper/backward/consume/tile.cuh"
HOPPER_KEY_GROUP = "optimized/attention/hopper/backward/consume/key_group.cuh"
HOPPER_BLOCKS = "optimized/attention/hopper/backward/shared/blocks.cuh"
HOPPER_KEYS = "optimized/attention/hopper/backward/consume/item_keys.cuh"
HOME = "optimized/exchange/move_home.cu"

MUTANTS_OF_NOT_FINITE = [
    Mutant(
        "float32: values that are not finite reach whoever shares their tile",
        F32_FORWARD,
        "      if (all_finite)\n",
        "      if (true)\n",
    ),
    Mutant(
        "float32: queries that are not finite reach keys that they do not see",
        F32_BACKWARD,
        "return rows.sees(j, item.begin + i, item.end);",
        "return true;",
    ),
    Mutant(
        "float32: a dropped pair is not seen",
        "reference/attention/score_model.h",
        ": weight * Real{0};",
        ": Real{0};",
    ),
    Mutant(
        "float32: inf - inf in lse",
        F32_FORWARD,
        "isinf(new_top) ? 0.0f : new_top;",
        "new_top == -INFINITY ? 0.0f : new_top;",
    ),
    Mutant(
        "mma: values that are not finite reach whoever shares their block",
        MMA_FORWARD,
        "drop_not_finite<T, C::kV, C::kKeys, C::kThreads>(values, [](int) { return true; });",
        "",
    ),
    Mutant(
        "mma: values that were dropped are missed by those who see them",
        MMA_FORWARD,
        "if (__syncthreads_or(drops)) seen_pairs",
        "if (__syncthreads_or(drops) < 0) seen_pairs",
    ),
    Mutant(
        "mma: the largest logit is a number beside a NaN",
        MMA_FORWARD,
        "if (rows.has(i) && isnan(softmax.sum[i / 2][i % 2]))",
        "if (rows.has(i) && softmax.sum[i / 2][i % 2] < 0)",
    ),
    Mutant(
        "mma: what others of a warp see changes a row's bits",
        SOFTMAX,
        "const float raised = outgrown ? fmaxf(top[m][half], block_top[m][half]) : top[m][half];",
        "const float raised = fmaxf(top[m][half], block_top[m][half]);",
    ),
    Mutant(
        "mma: a score of -inf weighs something",
        PAIRS,
        "score == -INFINITY ? 0.0f : 1.0f,",
        "1.0f,",
    ),
    Mutant(
        "mma: dout of rows that see nothing reaches their block by delta",
        MMA_BACKWARD,
        "if (!clear_block) hide_gradients<C>(grads, scores);",
        "",
    ),
    Mutant(
        "mma: queries that are not finite reach keys that they do not see",
        MMA_BACKWARD,
        "if (!block.clear && found.queries[stage] != 0) drop_of_step<C>(queries, douts, step);",
        "",
    ),
    Mutant(
        "mma: keys that are not finite reach queries that do not see them",
        MMA_BACKWARD,
        "if (block.clear || found.keys == 0)",
        "if (true)",
    ),
    Mutant(
        "mma: a lse of NaN weighs as -inf",
        MMA_BACKWARD,
        "max_or_nan(lse * kLog2E, -1e30f);",
        "fmaxf(lse * kLog2E, -1e30f);",
    ),
    Mutant(
        "mma: keys that are not finite reach queries that do not see them, deterministic",
        MMA_QUERIES,
        "    if (!all_whole) {\n",
        "    if (false) {\n",
    ),
    Mutant(
        "hopper: nobody is told that values were dropped",
        PRODUCER,
        "      *p.dropped = 1;\n",
        "",
    ),
    Mutant(
        "hopper: values that are not finite reach whoever shares their block",
        PRODUCER,
        "note_.is_clear() ? 0 : LoadedBlock::kInspected;",
        "0;",
    ),
    Mutant(
        "hopper: values are inspected before they have landed",
        PRODUCER,
        "    wait(s.v_landed[stage], parities >> stage & 1);\n",
        "",
    ),
    Mutant(
        "hopper: half of a block's values are inspected",
        PRODUCER,
        "at < Shape::kPanelBytes; at += 32 * 16)",
        "at < Shape::kPanelBytes / 2; at += 32 * 16)",
    ),
    Mutant(
        "hopper: dout of rows that see nothing reaches their block by delta",
        HOPPER_TILE,
        "weights[i] = grads[i] = 0;",
        "weights[i] = 0;",
    ),
    Mutant(
        "hopper: rows that are not there see keys, whose infinities times 0 reach all of dv",
        "optimized/attention/hopper/backward/produce/rows.cuh",
        "      clear &= groups_seen<kKeyGroups>(seen);",
        "      if (row < note.rows) clear &= groups_seen<kKeyGroups>(seen);",
    ),
    Mutant(
        "hopper: queries that are not finite reach keys that they do not see",
        HOPPER_BACKWARD,
        "if ((flags & kClear) == 0) this->drop_queries",
        "if (false) this->drop_queries",
    ),
    Mutant(
        "hopper: keys that are not finite reach queries that do not see them",
        HOPPER_KEYS,
        " chunks[i] = finite_part<T>(chunks[i]);",
        " chunks[i] = chunks[i];",
    ),
    Mutant(
        "hopper: keys that are not finite reach the last queries of an item",
        HOPPER_BACKWARD,
        "    if constexpr (kHasDq) drop_keys(flags, block - 1);\n",
        "",
    ),
    Mutant(
        "hopper: keys that are not finite reach others by half of the tile",
        HOPPER_KEYS,
        "for (int i = thread; i < Shape::kKeyTile",
        "for (int i = thread % kGroupThreads; i < Shape::kKeyTile",
    ),
    Mutant(
        "hopper: keys that were dropped are missed by the scores of later queries",
        HOPPER_KEYS,
        "    if (all_finite()) return;\n    const CUtensorMap* map",
        "    if (true) return;\n    const CUtensorMap* map",
    ),
    Mutant(
        "hopper: keys are dropped from blocks that all see, too",
        HOPPER_KEY_GROUP,
        "    if ((flags & kClear) != 0) return;\n    wait(barriers().ds_full",
        "    wait(barriers().ds_full",
    ),
    Mutant(
        "hopper: keys come again while the other group multiplies those without",
        HOPPER_KEYS,
        "  meet<false>(thread / kGroupThreads);\n  if (thread == 0) {\n",
        "  if (thread == 0) {\n",
    ),
    Mutant(
        "hopper: groups that come by different ways wait at one barrier",
        HOPPER_BLOCKS,
        "  let_pass(kFirst + 1 - group, kBoth);\n  synchronize(kFirst + group, kBoth);\n",
        "  synchronize(kFirst, kBoth);\n",
    ),
    Mutant(
        "hopper: a group meets the other anew where some of it still wait",
        HOPPER_BLOCKS,
        "kBothBarrier + (kSecond ? kGroups : 0);",
        "kBothBarrier;",
    ),
    Mutant(
        "hopper: nobody is told that keys were dropped",
        HOPPER_KEYS,
        "= word(), *parameters.dropped = 1;\n  }\n\n  // By one group",
        "= word();\n  }\n\n  // By one group",
    ),
    Mutant(
        "clear rows of a second launch are those of its own blocks",
        PAIRS,
        "at.clear.begin < at.begin - Block + 2",
        "at.clear.begin <= at.begin",
    ),
    Mutant(
        "dsink takes part in rows that see nothing",
        HOME,
        "if (!is_token(global) || !sees(global)) continue;",
        "if (!is_token(global)) continue;",
    ),
    Mutant(
        "hopper, in turn: what keys of several items add goes to sums that nobody rounds any more",
        PAIRS,
        "const DeviceMatrix& dq = a.final_dq.data != nullptr ? a.final_dq : a.dq;",
        "const DeviceMatrix& dq = a.dq;",
    ),
    Mutant(
        "not finite: what was dropped from final results goes to sums",
        PAIRS,
        "const DeviceMatrix& out = goes_apart ? a.final_out : a.out;",
        "const DeviceMatrix& out = a.out;",
    ),
    Mutant(
        "not finite: what was dropped from final gradients of values goes to sums",
        PAIRS,
        "&dv = goes_apart ? a.final_dv : a.dv;",
        "&dv = a.dv;",
    ),
]
