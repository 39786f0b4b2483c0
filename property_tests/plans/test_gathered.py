"""Where several ranks' rows lie in one buffer, a sequence goes on from chunk to chunk.

A kernel's block ends where a segment ends. Gathered in the order of ranks, keys end one at every
chunk's border; in the order of sequences a document is one segment, whoever owned its chunks.
"""

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from hypothesis import assume, given
from hypothesis import strategies as st
from ringside.testing import strategies
from test_balanced import BLOCK, PACKS

CLOSED_FORMS = tuple(name for name in rs.PARTITIONS if name != "balanced")
# All ranks' blocks over one rank's, at most: queries in chunks of few rows are what remains.
MOST = {8: 1.25, 32: 2.0, 64: 3.1}
MOST_OF_MAN_PAGES = {8: 1.25, 32: 2.25, 64: 3.9}  # chunks of 26 and 13 rows
GATHERED = st.sampled_from(["all_gather", "a2a"])


def gathered(plan):
    """Every buffer of keys, and of queries under a2a, of the last step."""
    for rank in range(plan.cp_size):
        step = plan.steps(rank)[-1]
        yield step.kv
        if plan.comm == "a2a":
            yield step.q


@given(noted(strategies.cases(partitions=st.sampled_from(CLOSED_FORMS), comms=GATHERED)))
def test_a_gathered_sequence_is_one_segment(case):
    assume(case.partition_k is None)
    for segments in gathered(case.plan()):
        assert len({s.seq for s in segments}) == len(segments)
        assert all((s.pos == 0 and s.stride == 1) or s.len == 1 for s in segments)


@given(noted(strategies.cases(comms=GATHERED)))
def test_rows_that_land_by_position_are_sent_together(case):
    for rank in range(case.cp_size):
        for step in case.plan().steps(rank):
            assert all(m.row >= 0 for m in step.sends)
            assert all(m.row >= -1 for m in step.receives)


def blocks_of_whole_documents(plan):
    """Of a causal mask: a rank's blocks of queries, each against its document from the start."""
    ends = [
        min(begin + BLOCK, s.pos + s.len)
        for rank in range(plan.cp_size)
        for s in plan.shards_q(rank)
        for begin in range(s.pos, s.pos + s.len, BLOCK)
    ]
    return int((-(-np.asarray(ends, dtype=np.int64) // BLOCK)).sum())


@pytest.mark.parametrize("cp_size", MOST)
@pytest.mark.parametrize("pack", PACKS)
def test_keys_gathered_from_many_ranks_cost_the_blocks_of_whole_documents(pack, cp_size):
    layout = rs.PackedLayout.from_lengths(PACKS[pack])
    one_rank = rs.estimate(layout, cp_size=1).blocks.sum()
    most = MOST_OF_MAN_PAGES if pack.startswith("man pages") else MOST
    for partition in ("zigzag", "contiguous"):
        plan = rs.plan(layout, cp_size=cp_size, partition=partition, comm="all_gather")
        blocks = plan.cost().blocks.sum()
        assert blocks == blocks_of_whole_documents(plan)
        assert blocks <= most[cp_size] * one_rank, f"{blocks / one_rank:.2f} of one rank"


@pytest.mark.parametrize("partition", ["zigzag", "striped", "contiguous"])
def test_heads_traded_for_rows_cost_what_one_rank_costs(partition):
    layout = rs.PackedLayout.from_lengths(PACKS["108 log-normal documents, median 664"])
    one_rank = rs.estimate(layout, cp_size=1).blocks.sum()
    traded = rs.estimate(layout, cp_size=8, partition=partition, comm="a2a", num_heads=8)
    assert traded.blocks.sum() == 8 * one_rank


def test_fetched_chunks_that_meet_are_one_segment():
    layout = rs.PackedLayout.from_lengths(PACKS["108 log-normal documents, median 664"])
    ring = rs.estimate(layout, cp_size=32, partition="zigzag", comm="p2p")
    fetched = rs.estimate(layout, cp_size=32, partition="zigzag", comm="fetch", stages=1)
    assert fetched.blocks.sum() < 0.4 * ring.blocks.sum()


def test_a_plan_whose_rows_land_by_position_survives_json():
    plan = rs.plan(rs.PackedLayout.from_lengths([40, 24]), cp_size=4, comm="all_gather")
    assert any(m.row == -1 for m in plan.steps(0)[0].receives)
    again = rs.Plan.from_json(plan.to_json())
    assert again == plan
    again.verify()
