"""Ranks in several processes whose lengths only the devices know compute what one process does.

To the bit what a DevicePlan of the same capacity computes with every rank on one GPU, and near what
a Plan does that knows the lengths; rows behind a rank's sequences are nobody's, whatever lay there.
On one GPU its processes exchange through peer memory; where there are two, each has one.
"""

import pytest
import ringside as rs
from cuda_cases import REASON
from device_plans import COMMS, PARTITIONS, takes
from group_pool import HOSTED, SIZES, Pool, case_of, devices
from group_processes import started
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ringside.testing import strategies

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")


@pytest.fixture(scope="module")
def pool():
    with started(4) as workers:
        yield Pool(workers)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", HOSTED)
@pytest.mark.parametrize("comm", COMMS)
def test_every_transport_over_every_way_to_host(pool, comm, name, dtype):
    pool.check(name, case_of(comm, name), dtype)


LONGER_THAN_A_BLOCK = rs.PackedLayout([0, 300, 301, 301, 460], [0, 304, 312, 312, 472])


@pytest.mark.parametrize("comm", COMMS)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_cell_of_documents_longer_than_a_block(pool, partition, comm):
    for name, dims in (("two ranks a process", 64), ("two processes", 128)):
        shape = {"head_dim": dims, "head_dim_v": dims, "partition": partition}
        capacity = {"max_sequences": 5, "num_rows_q": 480, "pad_to_multiple_of": 8}
        capacity["num_rows_k"] = 480
        case = case_of(comm, name, LONGER_THAN_A_BLOCK, **shape)
        pool.check(name, case, "bfloat16", capacity=capacity)


@pytest.mark.parametrize("comm", ["all_gather", "a2a"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_rows_lie_as_in_the_plan_the_bits_are_those_of_the_plan(pool, dtype, comm):
    layout = rs.PackedLayout.from_lengths([700, 0, 1, 13, 260, 40])
    case = case_of(comm, "two ranks a process", layout, head_dim=64, head_dim_v=64, seed=4)
    call = """
room = Room(case, group, dtype, device)
room.set_lengths()
answer = room.wrong(room.passes()[0], room.on_one_gpu(case.plan(), backend="cuda")[0])
"""
    assert pool.all("two ranks a process", call, case=case, dtype=dtype) == [[], []]


OPTIONS = {
    "sink": {"sink": tuple(range(-4, 4))},
    "softcap and dropout": {"softcap": 20.0, "dropout_p": 0.25, "dropout_seed": 7},
    "odd head dimensions": {"head_dim": 20, "head_dim_v": 12},
    "window": {"mask": rs.Mask.sliding_window(30, 5)},
    "bottom right": {"mask": rs.Mask.causal(align="bottom_right")},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", OPTIONS)
def test_options_and_converted_rows(pool, options, dtype):
    for comm, name in (("p2p", "two processes"), ("all_gather", "one and two")):
        pool.check(name, case_of(comm, name, **OPTIONS[options]), dtype, near=False)


@st.composite
def groups_and_cases(draw):
    name = draw(st.sampled_from(list(HOSTED)))
    sizes = st.just(SIZES[name])
    case = draw(strategies.cases(cp_sizes=sizes, options=strategies.options))
    return name, case, draw(st.sampled_from(["float32", "bfloat16"]))


@settings(max_examples=min(60, settings().max_examples))
@given(groups_and_cases())
def test_any_lengths(pool, drawn):
    name, case, dtype = drawn
    assume(takes(case))
    pool.check(name, case, dtype, near=False)


@pytest.mark.parametrize("comm", COMMS)
def test_nccl_gives_the_same(pool, comm):
    if devices() < 2:
        pytest.skip("NCCL refuses two processes on one GPU, and there is one")
    pool.check("two processes", case_of(comm, "two processes"), "bfloat16", "nccl")
