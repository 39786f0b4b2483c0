"""rs.estimate counts what the cost() of the built plan counts, in every cell."""

import inspect
import time

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_of_each_kind import MASKS
from ringside.testing import strategies

ARRAYS = tuple(
    name for name, field in inspect.getmembers(rs.PlanCost) if isinstance(field, property)
)
SIZES = {"head_dim": 6, "head_dim_v": 5, "bytes_per_element": 3}
# Long documents among short ones: segments of several blocks, of one row and of none.
LENGTHS = (0, 1, 1, 2, 3, 5, 17, 40, 41, 64, 130, 300)


def assert_same_cost(got, wanted):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name), err_msg=name)


def assert_estimated(layout_q, layout_k=None, block_size=(128, 128), **arguments):
    plan = rs.plan(layout_q, layout_k, **arguments)
    got = rs.estimate(layout_q, layout_k, **arguments, **SIZES, block_size=block_size)
    assert_same_cost(got, plan.cost(**SIZES, block_size=block_size))


@given(noted(strategies.cases()), st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_an_estimate_is_the_cost_of_the_plan(case, block_size):
    arguments = {
        "mask": case.mask,
        "cp_size": case.cp_size if isinstance(case.partition, str) else None,
        "partition": case.partition,
        "partition_k": case.partition_k,
        "comm": case.comm,
        "a2a_size": case.a2a_size,
        "num_heads": case.num_heads,
        "num_kv_heads": case.num_kv_heads,
    }
    assert_estimated(case.layout_q, case.layout_k, block_size, **arguments)


@given(
    st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=8),
    st.sampled_from([1, 8, 32]),
    st.sampled_from(list(MASKS.values())),
    st.sampled_from([2, 3, 8, 16, 24]),
    st.sampled_from(rs.PARTITIONS),
    st.sampled_from([(1, 1), (8, 16), (128, 128)]),
)
def test_every_partition_and_transport_of_many_ranks_is_estimated(
    lengths, multiple, mask, cp_size, partition, block_size
):
    layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=multiple)
    group = cp_size // 2 if cp_size % 2 == 0 else cp_size
    for comm in rs.COMMS:
        assert_estimated(
            layout,
            block_size=block_size,
            mask=mask,
            cp_size=cp_size,
            partition=partition,
            comm=comm,
            a2a_size=group if comm == "a2a+p2p" else None,
            num_heads=4,
            num_kv_heads=2,
        )


@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("partition", rs.PARTITIONS)
def test_real_documents_are_estimated(partition, comm):
    """One giant among hundreds, windows that cover some documents and part of others."""
    rng = np.random.default_rng(11)
    lengths = [*rng.lognormal(4, 1.2, 40).astype(int).tolist(), 3000, 0, 1]
    layout = rs.PackedLayout.from_lengths(lengths)
    for mask in (rs.Mask.causal(), rs.Mask.sliding_window(200, 0), rs.Mask.chunked(150)):
        assert_estimated(
            layout,
            block_size=(16, 32),
            mask=mask,
            cp_size=12,
            partition=partition,
            comm=comm,
            a2a_size=3 if comm == "a2a+p2p" else None,
        )


def test_a_pack_that_no_plan_holds_is_estimated():
    """Its pairs are known in closed form: a causal document of n tokens has n(n+1)/2."""
    lengths = [700 + 3 * i for i in range(400)]
    layout = rs.PackedLayout.from_lengths(lengths)
    cost = rs.estimate(layout, cp_size=256)
    assert cost.pairs.sum() == sum(n * (n + 1) // 2 for n in lengths)
    assert cost.tiles.sum() > 40_000_000
    assert cost.fill < 0.01 < 1 < cost.imbalance < 1.2


def test_a_shard_that_has_stripes_and_other_rows_is_visited_once():
    layout = rs.PackedLayout([0, 5])
    stripes = [rs.Segment(0, 0, 2, stride=3), rs.Segment(0, 1, 1, stride=3)]
    rows = [rs.Segment(0, 4, 1, stride=3), rs.Segment(0, 2, 1, stride=3)]
    assert_estimated(layout, partition=[[*stripes, *rows], []], mask=rs.Mask.full())


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 64]),
    st.sampled_from(list(MASKS.values())),
    st.sampled_from([2, 3, 7]),
    st.sampled_from(rs.PARTITIONS),
    st.integers(1, 6),
)
@settings(max_examples=40)
def test_what_is_fetched_is_estimated_run_by_run(seed, multiple, mask, cp_size, partition, stages):
    """Homes of thousands of rows: gaps below and above what is fetched with what is around."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(rng.uniform(1, 6), 1.5, 60).astype(int)
    layout = rs.PackedLayout.from_lengths([*lengths, 9000], pad_to_multiple_of=multiple)
    arguments = {"mask": mask, "cp_size": cp_size, "partition": partition, "stages": stages}
    assert_estimated(layout, comm="fetch", **arguments)


@pytest.mark.parametrize(
    "partition", ["zigzag", "contiguous", "balanced", "whole_pack_zigzag", "striped"]
)
def test_fetch_of_a_pack_that_no_plan_holds_is_estimated(partition):
    lengths = rs.lengths.pack(rs.lengths.load("man_pages"), 400_000)
    layout = rs.PackedLayout.from_lengths(lengths)
    cost = rs.estimate(layout, cp_size=256, partition=partition, comm="fetch")
    ring = rs.estimate(layout, cp_size=256, partition=partition)
    assert (cost.pairs.sum(axis=1) == ring.pairs.sum(axis=1)).all()
    assert cost.bytes_sent.sum() == cost.bytes_received.sum() <= ring.bytes_received.sum()
    assert (cost.rows_needed.sum(axis=1) == ring.rows_needed.sum(axis=1)).all()


@pytest.mark.parametrize(
    ("cp_size", "partition", "comm", "limit"),
    [
        (512, "striped", {}, 2),
        (512, "striped", {"comm": "fetch"}, 2),
        (512, "striped", {"comm": "a2a+p2p", "a2a_size": 64}, 2),
        (1536, "whole_pack_zigzag", {}, 4),
    ],
)
def test_a_million_tokens_on_many_ranks_take_seconds_of_a_processor(
    cp_size, partition, comm, limit, pytestconfig
):
    """A card costs nothing of its own, and a step of a ring the same however many there are."""
    if pytestconfig.getoption("--hypothesis-profile") == "mutants":  # of a build that is not quick
        limit *= 4
    lengths = rs.lengths.pack(rs.lengths.load("man_pages"), 1_000_000)
    layout = rs.PackedLayout.from_lengths(lengths)
    seconds = []
    while len(seconds) < 2 and min(seconds, default=limit + 1) > limit:  # it may have been busy
        started = time.process_time()
        rs.estimate(layout, cp_size=cp_size, partition=partition, num_heads=64, **comm)
        seconds.append(time.process_time() - started)
    assert min(seconds) <= limit, seconds


def test_fetch_of_own_stripes_that_no_memory_holds_is_refused():
    layout = rs.PackedLayout.from_lengths([2000] * 200)
    stripes = [
        [
            rs.Segment(s, (r + 1) % 512, (2000 - (r + 1) % 512 - 1) // 512 + 1, stride=512)
            for s in range(200)
        ]
        for r in range(512)
    ]
    with pytest.raises(rs.Unsupported, match="a named partition, or fewer ranks"):
        rs.estimate(layout, partition=stripes, comm="fetch")


def test_a_plan_of_too_many_tiles_is_refused_before_it_is_built():
    layout = rs.PackedLayout.from_lengths([900] * 600)
    with pytest.raises(ValueError) as refused:
        rs.plan(layout, cp_size=1024)
    tiles = int(rs.estimate(layout, cp_size=1024).tiles.sum())
    message = str(refused.value)
    assert f"{tiles} tiles" in message and "GiB" in message and "max_tiles=50000000" in message
    assert "ringside.estimate()" in message


def test_max_tiles_is_the_most_tiles_there_may_be():
    layout = rs.PackedLayout([0, 9, 20])
    tiles = rs.plan(layout, cp_size=3).verify().tiles
    assert rs.plan(layout, cp_size=3, max_tiles=tiles).verify().tiles == tiles
    with pytest.raises(ValueError, match=f"has {tiles} tiles.*max_tiles={tiles - 1}"):
        rs.plan(layout, cp_size=3, max_tiles=tiles - 1)
    with pytest.raises(ValueError, match=r"max_tiles=-1; expected 0 or more"):
        rs.plan(layout, cp_size=3, max_tiles=-1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"cp_size": 2, "partition": "zigzagged"},
        {"cp_size": 2, "comm": "ring"},
        {"cp_size": 0},
        {},
        {"cp_size": 4, "comm": "a2a+p2p", "a2a_size": 3},
        {"cp_size": 2, "num_heads": 3, "num_kv_heads": 2},
        {"partition": [[rs.Segment(0, 0, 3)], [rs.Segment(0, 2, 6)]]},
    ],
)
def test_what_plan_refuses_estimate_refuses_in_the_same_words(arguments):
    layout = rs.PackedLayout([0, 8])
    with pytest.raises(ValueError) as of_plan:
        rs.plan(layout, **arguments)
    with pytest.raises(ValueError) as of_estimate:
        rs.estimate(layout, **arguments)
    assert str(of_estimate.value) == str(of_plan.value)


@pytest.mark.parametrize("size", [{"head_dim": 0}, {"block_size": (0, 1)}])
def test_sizes_below_one_are_refused(size):
    with pytest.raises(ValueError, match="at least 1"):
        rs.estimate(rs.PackedLayout([0, 8]), cp_size=2, **size)
