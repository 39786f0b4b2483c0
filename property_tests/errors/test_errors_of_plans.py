"""Bad plans: the message says what was got, what was expected and how to fix it.

Each line of a table is one bad call and the pieces that its message must hold, in this order.
"""

import pytest
import ringside as rs
from bad_calls import LAYOUT, PLAN, Q, refused

OTHER = rs.PackedLayout([0, 2, 5])
SEGMENTS = [[rs.Segment(0, 0, 3)], [rs.Segment(0, 3, 1), rs.Segment(1, 0, 2)]]


def planned(layout=LAYOUT, layout_k=None, **keywords):
    return lambda: rs.plan(layout, layout_k, **{"cp_size": 2, **keywords})


def owned(*shards, **keywords):
    return lambda: rs.plan(LAYOUT, partition=list(shards), **keywords)


PLANS = {
    "no cp_size": (lambda: rs.plan(LAYOUT), "cp_size is missing", "expected the number of ranks"),
    "no ranks": (planned(cp_size=0), "cp_size=0", "at least 1"),
    "negative ranks": (planned(cp_size=-2), "cp_size=-2", "at least 1"),
    "unknown partition": (
        planned(partition="zig"),
        'partition="zig" is unknown',
        ", ".join(f'"{name}"' for name in rs.PARTITIONS),
    ),
    "unknown comm": (
        planned(comm="ring"),
        'comm="ring" is unknown',
        ", ".join(f'"{name}"' for name in rs.COMMS),
    ),
    "a2a size that does not divide": (
        planned(cp_size=4, comm="a2a+p2p", a2a_size=3),
        "a2a_size=3 does not divide cp_size=4",
        "Pass a divisor of cp_size",
    ),
    "a2a size larger than cp_size": (
        planned(comm="a2a+p2p", a2a_size=4),
        "a2a_size=4 does not divide cp_size=2",
        "Pass a divisor",
    ),
    "a2a size zero": (planned(comm="a2a+p2p", a2a_size=0), "a2a_size=0", "divisor of cp_size"),
    "a2a size missing": (
        planned(cp_size=4, comm="a2a+p2p"),
        "a2a_size is missing",
        'comm="a2a+p2p" needs',
        "a divisor of cp_size=4. Pass one",
    ),
    "a2a size for another comm": (
        planned(comm="p2p", a2a_size=2),
        'a2a_size=2 with comm="p2p"',
        'only comm="a2a+p2p"',
        "Leave it out",
    ),
    "no stages": (
        planned(comm="fetch", stages=0),
        "stages=0",
        "expected at least 1 exchange",
        "Leave it out",
    ),
    "fewer stages than none": (planned(comm="fetch", stages=-1), "stages=-1", "at least 1"),
    "stages for another comm": (
        planned(comm="a2a", stages=2),
        'stages=2 with comm="a2a"',
        'only comm="fetch"',
        "Leave it out",
    ),
    "no heads": (planned(num_heads=0), "num_heads=0", "at least 1"),
    "no kv heads": (planned(num_heads=2, num_kv_heads=0), "num_kv_heads=0", "multiple of kv heads"),
    "heads that do not divide": (
        planned(num_heads=4, num_kv_heads=3),
        "num_heads=4 and num_kv_heads=3",
        "multiple of kv heads",
    ),
    "layouts of unlike batch": (
        planned(layout_k=rs.PackedLayout([0, 3])),
        "layout_q holds 2 sequences and layout_k 1",
        "same number",
        "Add zero-length",
    ),
    "partition_k with a name": (
        planned(partition_k=SEGMENTS),
        'partition="zigzag"',
        "Leave partition_k out",
    ),
    "partition_k missing": (
        planned(layout_k=OTHER, partition=SEGMENTS),
        "layout_k differs from layout_q",
        "pass partition_k",
    ),
    "cp_size against segments": (
        planned(cp_size=3, partition=SEGMENTS),
        "cp_size=3",
        "2 ranks",
        "Leave cp_size out",
    ),
    "partition_k for other ranks": (
        planned(partition=SEGMENTS, partition_k=[*SEGMENTS, []]),
        "2 query shards and 3 key shards",
        "one of each for every rank",
    ),
    "segments: nobody": (owned(), "0 query shards", "every rank"),
    "segments: owned twice": (
        owned([rs.Segment(0, 0, 4), rs.Segment(1, 0, 2)], [rs.Segment(0, 3, 1)]),
        "query position 3 of sequence 0 is owned by rank 0 and by rank 1",
        "exactly once",
    ),
    "segments: padding forgotten": (
        owned([rs.Segment(0, 0, 3), rs.Segment(1, 0, 2)]),
        "query position 3 of sequence 0 is owned by no rank",
        "padding too",
    ),
    "segments: no such sequence": (
        owned([rs.Segment(2, 0, 1)]),
        "seq=2",
        "not among the 2 of the layout",
    ),
    **{
        f"segments: of sequence {seq}": (
            owned([rs.Segment(0, 0, 4)], [rs.Segment(seq, 0, 2)]),
            f"rank 1 query segment (seq={seq},",
            "not among the 2 of the layout. Count sequences from 0",
        )
        for seq in (-1, 2, 99, -(2**31), 2**31 - 1)
    },
    "segments of keys: of no sequence": (
        owned(*SEGMENTS, partition_k=[SEGMENTS[0], [rs.Segment(-1, 0, 2)]]),
        "rank 1 key segment (seq=-1,",
        "not among the 2 of the layout",
    ),
    "segments: more rows than can be counted": (
        owned([rs.Segment(0, 0, 2**31 - 1), rs.Segment(0, 0, 2), rs.Segment(0, 0, 2)]),
        "partition[0] lists segments down to row 2147483649",
        "expected 0 to 2147483647",
        "Own every row once",
    ),
    "a segment's positions beyond int32": (
        lambda: rs.Segment(0, 2**31 - 2, 3).positions,
        "reaches position 2147483648",
        "fits int32",
        "Pass a smaller",
    ),
    "segments: too far": (
        owned([rs.Segment(0, 0, 3, stride=2)]),
        "reaches position 4 of sequence 0, which has 4 rows",
    ),
    "segments: empty": (owned([rs.Segment(0, 0, 0)]), "len=0", "len >= 1", "Leave empty"),
    "segments: backwards": (
        owned([rs.Segment(0, 3, 4, stride=-1)]),
        "stride=-1",
        "expected stride >= 1",
    ),
    "segments: before the start": (owned([rs.Segment(0, -1, 2)]), "pos=-1", "pos >= 0"),
    "segments: with a hole": (
        owned([rs.Segment(0, 0, 3, row=1)]),
        "starts at row 1 but the rows before it end at 0",
        "back to back",
    ),
    "segments of keys: owned twice": (
        owned(*SEGMENTS, partition_k=[[*SEGMENTS[0], rs.Segment(1, 0, 1)], SEGMENTS[1]]),
        "key position 0 of sequence 1 is owned by rank 0 and by rank 1",
        "exactly once",
    ),
    "rank too large": (lambda: PLAN.shards_q(2), "rank=2", "expected 0 to 1"),
    "rank negative": (lambda: PLAN.steps(-1), "rank=-1", "expected 0 to 1"),
    "unknown side": (
        lambda: PLAN.position_ids(0, side="v"),
        'side="v" is unknown',
        '"q", "k"',
    ),
    "shard: wrong rows": (lambda: PLAN.shard(Q[:5], 0), "shape (5, 4, 3)", "expected 6 rows"),
    "unshard: too few": (lambda: PLAN.unshard([Q]), "got 1 parts", "each of the 2 ranks"),
    "unshard: wrong rows": (
        lambda: PLAN.unshard([Q, Q]),
        "part 0 has shape (6, 4, 3)",
        "rank 0 owns",
    ),
    "cost: no dimension": (lambda: PLAN.cost(head_dim=0), "head_dim=0", "at least 1"),
    "cost: no bytes": (
        lambda: PLAN.cost(bytes_per_element=0),
        "bytes_per_element=0",
        "at least 1",
    ),
    "exchange: no such step": (lambda: PLAN.exchange(9, "q", []), "step=9", "expected 0 to 1"),
    "exchange: unknown operand": (
        lambda: PLAN.exchange(0, "v", []),
        'operand="v" is unknown',
        '"q", "kv"',
    ),
    "exchange: too few buffers": (
        lambda: PLAN.exchange(0, "q", [Q]),
        "got 1 buffers",
        "each of the 2 ranks",
    ),
    "exchange: wrong shape": (
        lambda: PLAN.exchange(1, "kv", [Q, Q]),
        "buffer 0 has shape (6, 4, 3)",
        "expected [",
    ),
    "exchange back: wrong shape": (
        lambda: PLAN.exchange_transposed(1, "kv", [Q, Q]),
        "buffer 0 has shape (6, 4, 3)",
        "expected [",
    ),
}


@pytest.mark.parametrize("bad", PLANS.values(), ids=PLANS.keys())
def test_bad_plans_are_refused_with_got_expected_and_fix(bad):
    refused(*bad)


def test_a_partition_that_is_neither_name_nor_segments_is_refused():
    for partition, words in (
        (None, "partition is a NoneType; expected a name"),
        (3, "partition is a int; expected a name"),
        ([["zigzag"]], "partition[0][0] is a str; expected a Segment"),
        ([rs.Segment(0, 0, 1)], "partition[0] is a Segment; expected a list of Segment"),
    ):
        refused(planned(partition=partition), words, kind=TypeError)
