"""One-line faults in how Hopper's forward kernel caps scores; see mutants_list.py."""

from mutants_list import Mutant

BENT = "optimized/attention/hopper/forward/bent_softmax.cuh"
CAPPED = "optimized/attention/hopper/forward/capped_softmax.cuh"
CONSUMER = "optimized/attention/hopper/forward/consumer.cuh"
POLICY = "optimized/attention/hopper/score_policy.cuh"
LOW_CAP = "optimized/attention/hopper/forward/low_cap_softmax.cuh"
SOFTCAP = "optimized/attention/hopper/near_softcap.h"
FAR_SOFTCAP = "optimized/attention/hopper/far_softcap.h"

MUTANTS_OF_HOPPER_SOFTCAP = [
    Mutant(
        "hopper: scores are near a softcap of twice the bound",
        SOFTCAP,
        "range->squared / (ratio * ratio)",
        "4 * range->squared / (ratio * ratio)",
    ),
    Mutant(
        "hopper: scores beside a cap of any size are near",
        SOFTCAP,
        "return nullptr;\n}\n// Beside caps",
        "return &ranges[kCount - 1];\n}\n// Beside caps",
    ),
    Mutant(
        "hopper: the widest range of near scores serves larger caps",
        SOFTCAP,
        "if (range.error * softcap <= kNearError)",
        "if (range.error * softcap <= 2 * kNearError)",
    ),
    Mutant(
        "hopper: all rows of a warp are small where one lane's are",
        BENT,
        "!__any_sync(~0u, large_rows != 0)",
        "!__all_sync(~0u, large_rows != 0)",
    ),
    Mutant(
        "hopper: which rows are far is not asked any more where a lane has two of them",
        BENT,
        "if (!__any_sync(~0u, far_rows != 3)) return;",
        "if (!__all_sync(~0u, far_rows != 3)) return;",
    ),
    Mutant(
        "hopper: the largest score of a capped row is that of two lanes",
        CAPPED,
        "__shfl_xor_sync(~0u, of_lane[half], 1)",
        "__shfl_xor_sync(~0u, of_lane[half], 2)",
    ),
    Mutant(
        "hopper: what a capped row does not see weighs what -inf does",
        BENT,
        "seen.hide_unseen(scores, half);",
        "seen.hide_unseen(scores, 0);",
    ),
    Mutant(
        "hopper: a row's scores are far from the cap's beginning where its neighbour's are",
        BENT,
        "if (!near.has(largest)) far_rows |= 1u << half;",
        "if (!near.has(largest)) far_rows |= 3;",
    ),
    Mutant(
        "hopper: a row of far scores is bent as near ones beside a row of near ones",
        BENT,
        "is_far = (far_rows & 1u << half) != 0;",
        "is_far = far_rows == 3;",
    ),
    Mutant(
        "hopper: small scores are taken from the largest one of the row 8 before",
        BENT,
        "weigh_near(scores, half, n.near.small, tops[half]);",
        "weigh_near(scores, half, n.near.small, tops[0]);",
    ),
    Mutant(
        "hopper: no row is far where one lane has none",
        BENT,
        "if (!__any_sync(~0u, far_rows != 0)) {",
        "if (!__all_sync(~0u, far_rows != 0)) {",
    ),
    Mutant(
        "hopper: a row's scores are not small where its neighbour's are not",
        BENT,
        "if (!near.small.has(largest)) large_rows |= 1u << half;",
        "if (!near.small.has(largest)) large_rows |= 3;",
    ),
    Mutant(
        "hopper: small rows have all terms beside others",
        BENT,
        "if ((large_rows & 1u << half) != 0) return of_row;",
        "if (large_rows != 0) return of_row;",
    ),
    Mutant(
        "hopper: near scores are taken from the largest one of the row 8 before",
        BENT,
        "weigh_near(scores, half, terms_of_row(half, n.near), tops[half]);",
        "weigh_near(scores, half, terms_of_row(half, n.near), tops[0]);",
    ),
    Mutant(
        "hopper: in masked blocks, near scores are taken from the largest one of the row 8 before",
        BENT,
        "bend_near(scores, half, n.near, tops[half]);",
        "bend_near(scores, half, n.near, tops[0]);",
    ),
    Mutant(
        "hopper: small rows of masked blocks are weighed by the terms that they have not",
        BENT,
        "      if (!is_masked) {\n",
        "      if (is_masked || !is_masked) {\n",
    ),
    Mutant(
        "hopper: beside far rows, near scores are taken from the largest one of the row 8 before",
        BENT,
        "bend_any(scores, half, n, tops[half]);",
        "bend_any(scores, half, n, tops[0]);",
    ),
    Mutant(
        "hopper: far scores are taken from the largest one of the row 8 before",
        BENT,
        "bend_far(scores, half, n.far, n.far.cap - tops[half]);",
        "bend_far(scores, half, n.far, n.far.cap - tops[0]);",
    ),
    Mutant(
        "hopper: all rows are far where each lane has a far one",
        BENT,
        "__all_sync(~0u, far_rows == 3)",
        "__all_sync(~0u, far_rows != 0)",
    ),
    Mutant(
        "hopper: a capped row that has seen nothing yet has no top",
        CAPPED,
        "(block_top[half] != -INFINITY || top[half] == -INFINITY);",
        "block_top[half] != -INFINITY;",
    ),
    Mutant(
        "hopper: whether a row's scores are near is told by its highest alone",
        BENT,
        "fmaxf(fabsf(high[half]), fabsf(low))",
        "fabsf(high[half])",
    ),
    Mutant(
        "hopper: whether a row's scores are near is told by its lowest alone",
        BENT,
        "fmaxf(fabsf(high[half]), fabsf(low))",
        "fabsf(low)",
    ),
    Mutant(
        "hopper: whether scores of a masked block are near is told by the first row",
        BENT,
        "is_masked ? largest_seen(scores, half, seen)",
        "is_masked ? largest_seen(scores, 0, seen)",
    ),
    Mutant(
        "hopper: scores too large for the product of four stay as they are in a lane's second row",
        CAPPED,
        "fmaxf(block_top[0], block_top[1]) > n.far.most",
        "block_top[0] > n.far.most",
    ),
    Mutant(
        "hopper: scores too large for the product of four stay as they are",
        BENT,
        "if (score > most) score = most;",
        "{}",
    ),
    Mutant(
        "hopper: scores too large for the product of four wait until a row outgrows",
        CAPPED,
        "outgrows(block_top[half], half, n) || block_top[half] > n.far.most;",
        "outgrows(block_top[half], half, n);",
    ),
    Mutant(
        "hopper: of four far scores, the last two have the first two's quotient",
        FAR_SOFTCAP,
        "last = inverse_of_all * of_first;",
        "last = inverse_of_all * of_last;",
    ),
    Mutant(
        "hopper: a capped row of -inf has seen nothing",
        CAPPED,
        "return !((score - outgrown[half]) * n.scale_log2 <= kSlack);",
        "return (score - outgrown[half]) * n.scale_log2 > kSlack;",
    ),
    Mutant(
        "hopper: the largest score of capped rows is not bent",
        BENT,
        "-INFINITY : bent(highest[half], n);",
        "-INFINITY : highest[half] * n.scale_log2;",
    ),
    Mutant(
        "hopper: the largest capped score is the largest q.k, whatever the scale",
        FAR_SOFTCAP,
        "return power > 0 && ",
        "return ",
    ),
    Mutant(
        "hopper: weights beside caps of up to 14 are as they are",
        POLICY,
        "ElementType::float16 ? 9.7f",
        "ElementType::float16 ? 14.f",
    ),
    Mutant(
        "hopper: beside a low cap, rows go on as if they had seen one score of 0",
        LOW_CAP,
        "factor[half] = exp2_fast(top[half]);",
        "factor[half] = exp2_fast(fminf(top[half], 0));",
    ),
    Mutant(
        "hopper: beside a low cap, output of before goes on as it is",
        CONSUMER,
        "softmax_.start_from_zero(factor);\n        rescale(output, factor);",
        "softmax_.start_from_zero(factor);",
    ),
    Mutant(
        "hopper: beside a low cap, scores are clipped where each lane has one too large",
        LOW_CAP,
        "__any_sync(~0u, max(words[0], words[1]) > __float_as_int(n.far.most))",
        "__all_sync(~0u, max(words[0], words[1]) > __float_as_int(n.far.most))",
    ),
    Mutant(
        "hopper: beside a low cap, the first row is asked for scores too large",
        LOW_CAP,
        "max(words[0], words[1]) > __float_as_int(n.far.most)",
        "words[0] > __float_as_int(n.far.most)",
    ),
    Mutant(
        "hopper: half the keys are asked for scores that are far or too large",
        BENT,
        "n < kScores / 4; ++n)\n      largest",
        "n < kScores / 8; ++n)\n      largest",
    ),
    Mutant(
        "hopper: beside a low cap, the largest score of a lane's second row is the first one's",
        LOW_CAP,
        "row_top(scores, half)",
        "row_top(scores, 0)",
    ),
]
