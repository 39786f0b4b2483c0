"""One-line faults in the Hopper kernels; see mutants_list.py. ./dev gpu-mutants plants them."""

from mutants_list import Mutant

CONSUMER = "optimized/attention/hopper/forward/consumer.cuh"
PRODUCER = "optimized/attention/hopper/forward/producer.cuh"
WALK = "optimized/attention/hopper/forward/key_walk.cuh"
LINE = "optimized/attention/hopper/seen_line.h"
NOTE = "optimized/attention/hopper/block_note.h"
BOX = "optimized/attention/hopper/machine/box.h"
QUEUE = "optimized/attention/hopper/queue.h"
RESULTS = "optimized/attention/hopper/forward/results.cuh"
SOFTMAX = "optimized/attention/hopper/forward/softmax.cuh"
LAUNCH = "optimized/attention/hopper/forward/forward.cu"
OPTIONS = "optimized/attention/hopper/forward/score_options.cuh"
OPTIONS_BACKWARD = "optimized/attention/hopper/backward/consume/score_options.cuh"
POLICY = "optimized/attention/hopper/score_policy.cuh"

MUTANTS_OF_HOPPER = [
    Mutant(
        "hopper: a box goes on behind its last valid row",
        BOX,
        "static_cast<int32_t>(kRaggedRows - valid), row + valid,",
        "static_cast<int32_t>(kRaggedRows - valid - 1), row + valid + 1,",
    ),
    Mutant(
        "hopper: a block of which one key is seen is left out",
        NOTE,
        "if (some.end <= begin || end <= some.begin",
        "if (some.end <= begin + 1 || end <= some.begin",
    ),
    Mutant(
        "hopper: a block that the last row sees in part counts as clear",
        NOTE,
        "return kSees | (all.begin <= begin && end <= all.end ? 0 : kMasked);",
        "return kSees | (all.begin <= begin && end <= all.end + 1 ? 0 : kMasked);",
    ),
    Mutant(
        "hopper: output is not rescaled when the maximum grows",
        CONSUMER,
        "output[n] *= factor[n / 2 % 2];",
        "output[n] *= factor[n / 2 % 2] == 0 ? 0 : 1;",
    ),
    Mutant(
        "hopper: the rows of a lane take each other's factor",
        CONSUMER,
        "output[n] *= factor[n / 2 % 2];",
        "output[n] *= factor[1 - n / 2 % 2];",
    ),
    Mutant(
        "hopper: values are weighed before they have landed",
        CONSUMER,
        "    wait(s_.v_full[v_.stage], v_.parity);\n    begin_products();",
        "    begin_products();",
    ),
    Mutant(
        "hopper: a ring's parity does not change",
        "optimized/attention/hopper/machine/barrier.h",
        "if (++stage == kStages) stage = 0, parity ^= 1;",
        "if (++stage == kStages) stage = 0;",
    ),
    Mutant(
        "hopper: queries of the next item overwrite this one's",
        PRODUCER,
        "wait(s_.q_empty[stage][group], before / kItemStages % 2 ^ 1);",
        "",
    ),
    Mutant(
        "lines of what is seen go on over a gap",
        "optimized/attention/hopper/seen_line.h",
        "row < gap_at ? row : row + gap;",
        "row;",
    ),
    Mutant(
        "a line behind a gap knows of one more",
        "optimized/attention/hopper/seen_line.h",
        "gap = row < q.gap_at ? q.gap : 0;",
        "gap = q.gap;",
    ),
    Mutant(
        "score options are given blocks that a gap goes through",
        "optimized/program/parts.cpp",
        "return options.score_options ? Neighbours::apart : Neighbours::joined;",
        "return Neighbours::joined;",
    ),
    Mutant(
        "hopper: output is stored before all of it is in shared memory",
        RESULTS,
        "    show_to_async();\n    __syncwarp();",
        "",
    ),
    Mutant(
        "hopper: the next item's output overwrites what is being stored",
        RESULTS,
        "if (lane == 0) wait_until_read<0>();  // of the columns, or the item, before",
        "",
    ),
    Mutant(
        "hopper: the queue is not begun anew",
        LAUNCH,
        "0, forward_workspace_bytes(arguments.shape), stream)",
        "0, 0, stream)",
    ),
    Mutant(
        "hopper: the last section of heads is as wide as the others",
        QUEUE,
        "const unsigned here = left < heads_of_section ? left : heads_of_section;",
        "const unsigned here = left < 0 ? left : heads_of_section;",
    ),
    Mutant(
        "hopper: short items of a launch are left out",
        QUEUE,
        "return {longer + static_cast<int>(item),",
        "return {static_cast<int>(item),",
    ),
    Mutant(
        "hopper: sums go on without what earlier launches saw",
        RESULTS,
        "softmax.sum[i] = lse != -INFINITY && threadIdx.x % 4 == 0 ? kWeight : 0;",
        "softmax.sum[i] = 0;",
    ),
    Mutant(
        "hopper: the key behind a row's last is seen",
        SOFTMAX,
        "keys_of_lane<kKeys>(seen.x + seen.y) - begin);",
        "keys_of_lane<kKeys>(seen.x + seen.y + 1) - begin);",
    ),
    Mutant(
        "hopper: of scores below zero the smallest counts as the largest",
        SOFTMAX,
        "return top >= 0 ? top : row_top_below_zero(scores, half);",
        "return top;",
    ),
    Mutant(
        "hopper: the key in front of a row's first is seen",
        SOFTMAX,
        "= keys_of_lane<kKeys>(seen.x);",
        "= keys_of_lane<kKeys>(seen.x - 1);",
    ),
    Mutant(
        "hopper: what earlier launches left is overwritten",
        CONSUMER,
        "i > 0 || !is_fresh_);",
        "i > 0);",
    ),
    Mutant(
        "hopper: keys that only the second group sees are left out",
        WALK,
        "ends[last < kGroupRows ? 1 : 3]",
        "ends[last < kGroupRows ? 1 : 1]",
    ),
    Mutant(
        "hopper: values overwrite those that are being weighed",
        PRODUCER,
        "wait(s.v_empty[stage], number / kStages % 2 ^ 1);",
        "",
    ),
    Mutant(
        "hopper: a row's table counts from the segment, not from the block",
        WALK,
        "first = max(seen.begin - begin_, 0), last = min(seen.end - begin_, kKeys);",
        "first = max(seen.begin, 0), last = min(seen.end, kKeys);",
    ),
    Mutant(
        "hopper: an item stops at its first segment that has keys",
        WALK,
        "    if (begin_ >= end_) find();",
        "    if (begin_ >= end_) partner_ = partner_end_;",
    ),
    Mutant(
        "hopper: the first scores of an item rescale the output of the one before",
        CONSUMER,
        "if (raises && !begins) rescale",
        "if (raises) rescale",
    ),
    Mutant(
        "hopper: an item goes on from the maximum of the one before",
        CONSUMER,
        "          softmax_.start();\n          next_queries();",
        "          next_queries();",
    ),
    Mutant(
        "hopper: an item is divided by the sum of the next",
        CONSUMER,
        "before, group_, softmax_before, output);",
        "before, group_, softmax_, output);",
    ),
    Mutant(
        "hopper: an item's rows are those of the next",
        CONSUMER,
        "finish<T, Shape, kOptions>(p_, s_, before, group_",
        "finish<T, Shape, kOptions>(p_, s_, (static_cast<void>(before), item), group_",
    ),
    Mutant(
        "hopper: an item's output goes on from the one before",
        CONSUMER,
        "softmax_before, output);\n        is_fresh_ = true;",
        "softmax_before, output);",
    ),
    Mutant(
        "hopper: an item's scores are of the queries before",
        CONSUMER,
        "  __device__ __forceinline__ void next_queries() {\n    items_.advance();\n",
        "  __device__ __forceinline__ void next_queries() {\n",
    ),
    Mutant(
        "hopper: what earlier launches saw is forgotten behind the end of an item",
        CONSUMER,
        "&& !(ended && (note.flags & kResumes) != 0);",
        ";",
    ),
    Mutant(
        "hopper: items behind which nobody writes leave sums alone",
        PRODUCER,
        "leaves_final(item, p_.has_final) ? kFinal : 0;",
        "false ? kFinal : 0;",
    ),
    Mutant(
        "hopper: items before which nobody wrote go on from what lies there",
        PRODUCER,
        "return (item.alone & kAloneBefore) != 0 ?",
        "return false ?",
    ),
    Mutant(
        "hopper: an item's rows see what the first of their segment do",
        LINE,
        "s.mask.aligned(q.position(row), s.len_q, s.len_k)",
        "s.mask.aligned(q.position(0), s.len_q, s.len_k)",
    ),
    Mutant(
        "hopper: chunks of a mask are not asked for",
        LINE,
        "holds(s.mask.is_one_window() && q.stride == 1",
        "holds(q.stride == 1",
    ),
    Mutant(
        "hopper: rows whose positions are apart see what neighbours do",
        LINE,
        "q.stride == 1 && k.stride == 1 && s.len_q < kFar",
        "s.len_q < kFar",
    ),
    Mutant(
        "hopper: keys behind the sequence's last are seen",
        LINE,
        "keys = (tokens < k.len ? tokens : k.len) - key;",
        "keys = k.len - key;",
    ),
    Mutant(
        "hopper: columns of results that are staged later are stored at the first ones",
        RESULTS,
        "ragged_box(begin + at,",
        "ragged_box(at,",
    ),
    Mutant(
        "hopper: no more than 128 columns of q and k are multiplied",
        CONSUMER,
        "i < Shape::kQk / 16;",
        "i < (Shape::kQk < 128 ? Shape::kQk : 128) / 16;",
    ),
    Mutant(
        "hopper: every other block of 64 keys is passed over",
        WALK,
        "begin_ += kKeys;",
        "begin_ += kBlockKeys;",
    ),
    Mutant(
        "hopper: ALiBi draws keys that are far away",
        OPTIONS,
        "-slope * fabsf(",
        "slope * fabsf(",
    ),
    Mutant(
        "hopper: scores beyond a softcap stay as they are where others of their lane are near",
        OPTIONS,
        "near != (1u << kBatches) - 1",
        "near == 0",
    ),
    Mutant(
        "hopper: batches of scores are bent in the order of the last one",
        OPTIONS,
        "near << (32 - kBatches + first / kBatch)",
        "near << (31 - first / kBatch)",
    ),
    Mutant(
        "hopper: a score beside one far beyond the softcap is bent by exponents",
        OPTIONS,
        "if_negative(__float_as_int(beyond[i]), batch[i] * factors[i],",
        "if_negative(0, batch[i] * factors[i],",
    ),
    Mutant(
        "hopper: softcap's derivative is left out",
        OPTIONS_BACKWARD,
        "change = fmaf(-x, x, 1);",
        "change = 1;",
    ),
    Mutant(
        "hopper: counters that are drawn together are those of the keys between",
        OPTIONS,
        "four_keys + 2 * m, 2, words",
        "four_keys + 2 * m, 1, words",
    ),
    Mutant(
        "hopper: of one row's bits, those drawn first are overwritten",
        OPTIONS,
        "left <<= 2 * kTogether, right <<= 2 * kTogether;",
        "left <<= 2 * kTogether;",
    ),
    Mutant(
        "hopper: dropout leaves out softcap and ALiBi",
        LAUNCH,
        "n.in_logits ? Options::all : Options::dropout",
        "Options::dropout",
    ),
    Mutant(
        "hopper: where dropout stands alone all weights are kept",
        OPTIONS,
        "kOptions == Options::dropout || n.drops",
        "kOptions != Options::dropout && n.drops",
    ),
    Mutant(
        "hopper: dropout counts queries from the segment's first row",
        POLICY,
        "q(of_q.position(q_row)),",
        "q(q_row),",
    ),
    Mutant(
        "hopper: a sink is left out of the lse that is returned",
        RESULTS,
        "factor *= merged.a, lse = merged.lse;",
        "factor *= merged.a;",
    ),
    Mutant(
        "hopper: head dimensions without a kernel for options run the one of others",
        LAUNCH,
        "(knows_options(s) || a.options.empty()) &&",
        "",
    ),
]
