"""One-line faults in the Hopper kernels; see mutants_list.py. ./dev gpu-mutants plants them."""

from mutants_list import Mutant

CONSUMER = "optimized/attention/hopper/forward/consumer.cuh"
PRODUCER = "optimized/attention/hopper/forward/producer.cuh"
WALK = "optimized/attention/hopper/forward/key_walk.cuh"
NOTE = "optimized/attention/hopper/block_note.h"
BOX = "optimized/attention/hopper/machine/box.h"
QUEUE = "optimized/attention/hopper/queue.h"
RESULTS = "optimized/attention/hopper/forward/results.cuh"
SOFTMAX = "optimized/attention/hopper/forward/softmax.cuh"
LAUNCH = "optimized/attention/hopper/forward/forward.cu"

MUTANTS_OF_HOPPER = [
    Mutant(
        "hopper: a box goes on behind its last valid row",
        BOX,
        "static_cast<int32_t>(kRaggedRows - valid), row + valid,",
        "static_cast<int32_t>(kRaggedRows - valid - 1), row + valid + 1,",
    ),
    Mutant(
        "hopper: a half of which one key is seen is left out",
        NOTE,
        "if (from < some.end && some.begin < from + kHalfKeys) halves |= 1u << half;",
        "if (from + 1 < some.end && some.begin < from + kHalfKeys) halves |= 1u << half;",
    ),
    Mutant(
        "hopper: a block that the last row sees in part counts as clear",
        NOTE,
        "return halves | (all.begin <= from && to <= all.end ? 0 : kMasked);",
        "return halves | (all.begin <= from && to <= all.end + 1 ? 0 : kMasked);",
    ),
    Mutant(
        "hopper: a second half alone is scored against the first",
        CONSUMER,
        "return note.halves(group_) == kSecondHalf ? kHalfKeys : 0;",
        "return note.halves(group_) == kBothHalves ? kHalfKeys : 0;",
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
        "hopper: output is stored before all of it is in shared memory",
        RESULTS,
        "  show_to_async();\n  __syncwarp();",
        "",
    ),
    Mutant(
        "hopper: the next item's output overwrites what is being stored",
        RESULTS,
        "if (lane == 0) wait_until_read<0>();  // of the item before",
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
        "const unsigned here = heads_of_section;",
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
        "const unsigned size = static_cast<unsigned>(seen.y);",
        "const unsigned size = static_cast<unsigned>(seen.y) + 1;",
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
        "first = max(seen.x - begin_, 0), last = min(seen.x + seen.y - begin_, kBlockKeys);",
        "first = max(seen.x, 0), last = min(seen.x + seen.y, kBlockKeys);",
    ),
    Mutant(
        "hopper: an item stops at its first segment that has keys",
        WALK,
        "    if (begin_ >= end_) find();",
        "    if (begin_ >= end_) partner_ = partner_end_;",
    ),
]
