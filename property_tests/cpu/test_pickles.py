"""Values and plans in pickles, copies, other processes: equal, usable, proved or not as before."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest
import ringside as rs
from each_way import each_of
from hypothesis import given
from hypothesis import strategies as st
from ringside.testing import Case, strategies

WAYS = {
    f"pickle protocol {protocol}": lambda x, protocol=protocol: pickle.loads(
        pickle.dumps(x, protocol)
    )
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
} | {"copy.copy": copy.copy, "copy.deepcopy": copy.deepcopy}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
SMALL = st.integers(0, 99)
SEGMENTS = st.builds(rs.Segment, seq=SMALL, pos=SMALL, len=SMALL, stride=SMALL, row=SMALL)
LAYOUT = rs.PackedLayout([0, 5, 12], [0, 8, 16])


def equal_twins(x, twin):
    return x == twin and twin == x and repr(x) == repr(twin) and type(x) is type(twin)


@given(value=strategies.layouts() | strategies.masks() | SEGMENTS)
@each_of("way", WAYS)
def test_values_come_back_equal(way, value):
    assert equal_twins(value, way(value))


@given(case=strategies.cases())
@each_of("way", WAYS)
def test_plans_come_back_equal(way, case):
    plan = case.plan()
    assert equal_twins(plan, way(plan))


@ways
@pytest.mark.parametrize("comm", rs.COMMS)
def test_plans_that_came_back_prove_and_run_as_before(way, comm):
    size = 2 if comm == "a2a+p2p" else None
    plan = rs.plan(LAYOUT, cp_size=4, comm=comm, a2a_size=size, num_heads=4, num_kv_heads=2)
    twin = way(plan)
    assert repr(twin.verify()) == repr(plan.verify())
    q, k, v = Case(LAYOUT, num_heads=4, num_kv_heads=2).arrays()[:3]
    for a, b in zip(plan.attention(q, k, v), twin.attention(q, k, v), strict=True):
        np.testing.assert_array_equal(a, b)
    assert twin.to_json() == plan.to_json() and twin.explain() == plan.explain()


@ways
def test_plans_of_segments_of_ones_own_come_back(way):
    mine = [[rs.Segment(0, 4, 4), rs.Segment(1, 1, 4, stride=2)], [rs.Segment(0, 0, 4)]]
    mine[1].append(rs.Segment(1, 0, 4, stride=2))
    plan = rs.plan(LAYOUT, partition=mine, mask=rs.Mask.full())
    twin = way(plan)
    assert equal_twins(plan, twin)
    assert twin.partition == "custom" and twin.shards_q(0) == plan.shards_q(0)


@ways
@pytest.mark.parametrize("kept", [{"num_steps": 1}, {"num_steps": 0}, {"tiles": {(1, 0, 0)}}])
def test_a_part_of_a_plan_stays_a_part(way, kept):
    whole = rs.plan(LAYOUT, cp_size=2)
    part = whole._part(**{"num_steps": whole.num_steps, **kept})
    twin = way(part)
    assert equal_twins(part, twin) and twin != whole
    with pytest.raises(rs.PlanError) as refusal:
        part.verify()
    with pytest.raises(rs.PlanError) as same:
        twin.verify()
    assert str(same.value) == str(refusal.value)


class Named(rs.Plan):
    """A subclass with a constructor and a state of its own."""

    def __init__(self, name, **arguments):
        super().__init__(LAYOUT, **arguments)
        self.name = name


@ways
def test_subclasses_keep_their_kind_and_their_attributes(way):
    plan = Named("mine", cp_size=3)
    twin = way(plan)
    assert equal_twins(plan, twin) and twin.name == "mine"
    twin.name = "yours"
    assert plan.name == "mine"


def test_what_a_device_has_of_a_plan_stays_there():
    plan = rs.plan(LAYOUT, cp_size=2)
    plan._programs["a device"] = lambda: "no pickle takes this"
    twin = pickle.loads(pickle.dumps(plan))
    assert twin == plan and not twin._programs


@ways
def test_a_piece_of_a_longer_pack_stays_at_its_place(way):
    """Dropout drops by place in the whole pack: a copy that starts at 0 drops other weights."""
    buffer = rs.MicroSequenceBuffer(rs.PackedLayout([0, 5, 12]), [0, 7, 12])
    plan, (q, k, v, _) = buffer.plans[1], Case(*buffer.layouts(1)).arrays()
    dropout = {"dropout_p": 0.5, "dropout_seed": 1}
    wanted, got = (x.attention(q, k, v, **dropout)[0] for x in (plan, way(plan)))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("table", "row", "column", "value", "message"),
    [
        ("tiles", 0, 8, 10**6, "lie outside the resident buffer"),
        ("messages", 0, 6, 10**6, "but the buffer has"),
        ("steps", 0, 3, 999, "names shard 999"),
    ],
)
def test_a_pickle_that_leaves_its_buffers_is_refused(table, row, column, value, message):
    make, (kind, arguments), _ = rs.plan(LAYOUT, cp_size=2).__reduce__()
    arguments["tables"][table][row, column] = value
    with pytest.raises(rs.PlanError, match=message):
        make(kind, arguments)


def test_only_values_that_hash_by_what_they_are_hash_at_all():
    mask = rs.Mask.sliding_window(3, 1)
    assert hash(pickle.loads(pickle.dumps(mask))) == hash(mask)
    for value in (LAYOUT, rs.Segment(0, 0, 1), rs.plan(LAYOUT, cp_size=2)):
        with pytest.raises(TypeError, match="unhashable"):
            hash(value)


def proved(plan):
    return repr(plan), repr(plan.verify()), plan


def test_plans_travel_between_processes():
    plans = [rs.plan(LAYOUT, cp_size=2, partition=partition) for partition in rs.PARTITIONS]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(proved, plans) == [proved(plan) for plan in plans]
