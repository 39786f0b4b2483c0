"""Partitions of the user's own: owners of documents or rows, functions, names to start from."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st
from ringside.testing import strategies

cp_sizes = st.integers(1, 5)


def owned_rows(plan, rank):
    return plan.row_indices(rank).tolist()


@given(strategies.layouts(), cp_sizes, st.data())
def test_each_row_goes_to_the_owner_of_its_document(layout, cp_size, data):
    count = layout.num_sequences
    ranks = st.integers(0, cp_size - 1)
    owners = data.draw(st.lists(ranks, min_size=count, max_size=count))
    plan = rs.plan(layout, cp_size=cp_size, partition=np.array(owners, np.int64), comm="all_gather")
    of_row = np.repeat(owners, layout.padded_lengths)
    for rank in range(cp_size):
        assert owned_rows(plan, rank) == np.flatnonzero(of_row == rank).tolist()
    assert plan.verify() and plan.partition == "custom"


@given(strategies.layouts(), cp_sizes, st.data())
def test_each_row_goes_to_its_owner(layout, cp_size, data):
    rows = layout.num_rows
    owners = data.draw(st.lists(st.integers(0, cp_size - 1), min_size=rows, max_size=rows))
    if rows == layout.num_sequences and owners:
        owners = [0] * rows  # one row a document: both readings are the same
    plan = rs.plan(layout, cp_size=cp_size, partition=owners, name="mine")
    for rank in range(cp_size):
        assert owned_rows(plan, rank) == np.flatnonzero(np.array(owners) == rank).tolist()
    assert plan.verify() and plan.partition == "mine"


@given(strategies.layouts(), cp_sizes, st.sampled_from(rs.PARTITIONS))
def test_a_named_partition_is_the_segments_that_it_gives_to_start_from(layout, cp_size, name):
    mine = rs.partition(name, layout, cp_size)
    plan = rs.plan(layout, cp_size=cp_size, partition=name)
    assert {segment.row for segments in mine for segment in segments} <= {-1}  # plan() counts rows
    again = rs.plan(layout, cp_size=cp_size, partition=mine)
    assert all(again.shards_q(rank) == plan.shards_q(rank) for rank in range(cp_size))
    same = rs.plan(layout, cp_size=cp_size, partition=mine, name="mine")
    assert same.diff(plan) == [f"partition is mine; the other's is {name}"]


@given(strategies.layouts(), cp_sizes)
def test_a_function_is_asked_of_the_layout_and_the_ranks(layout, cp_size):
    asked = []

    def whole_documents(of, ranks):
        asked.append((of, ranks))
        return [s % ranks for s in range(of.num_sequences)]

    plan = rs.plan(layout, cp_size=cp_size, partition=whole_documents)
    assert asked == [(layout, cp_size)]
    owners = [s % cp_size for s in range(layout.num_sequences)]
    assert plan == rs.plan(layout, cp_size=cp_size, partition=owners)
    named = rs.plan(layout, cp_size=cp_size, partition=lambda *_: "striped")
    assert named == rs.plan(layout, cp_size=cp_size, partition="striped")


def test_keys_of_other_lengths_follow_their_documents():
    layout_q, layout_k = rs.PackedLayout([0, 3, 8]), rs.PackedLayout([0, 6, 7])
    for partition in ([1, 0], lambda of, _: [1, 0] if of.num_rows else []):
        plan = rs.plan(layout_q, layout_k, cp_size=2, partition=partition)
        assert [plan.row_indices(rank).tolist() for rank in (0, 1)] == [[3, 4, 5, 6, 7], [0, 1, 2]]
        keys = [plan.row_indices(rank, side="k").tolist() for rank in (0, 1)]
        assert keys == [[6], [0, 1, 2, 3, 4, 5]]
        plan.verify()
    rows = rs.plan(layout_q, layout_k, cp_size=2, partition=[1] * 8, partition_k=[0] * 7)
    assert len(rows.row_indices(0, side="k")) == 7
    with pytest.raises(ValueError, match="layout_k differs from layout_q; pass partition_k"):
        rs.plan(layout_q, layout_k, cp_size=2, partition=[1] * 8)


LAYOUT = rs.PackedLayout([0, 3, 8])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"partition": [0, 1, 0]},
            r"partition has shape \[3\]; expected an owner for each",
        ),
        ({"partition": [0, 2]}, r"partition\[1\] is 2; expected a rank, 0 to 1, or a larger"),
        ({"partition": [-1, 0]}, r"partition\[0\] is -1; expected a rank, 0 to 1"),
        ({"partition": [0.5, 1]}, "partition has dtype float64; expected integers"),
        ({"partition": [0, 1], "cp_size": None}, "cp_size is missing; partition lists owners"),
        ({"partition": lambda *_: [0, 1], "cp_size": None}, "cp_size is missing; partition is a f"),
        ({"partition": lambda *_: None}, "what partition returned is a NoneType; expected a name"),
        ({"partition": [iter(()), []]}, r"partition\[0\] is a tuple_iterator; expected a list of"),
        ({"partition": [[], [7]]}, r"partition\[1\]\[0\] is a int; expected a Segment"),
        (
            {"partition": lambda *_: [0]},
            r"what partition returned has shape \[1\]; expected",
        ),
        ({"partition": lambda *_: "zagzig"}, '"zagzig" is unknown'),
        (
            {"partition": [0, 1], "name": "zigzag"},
            'name="zigzag" is a partition of the',
        ),
        ({"partition": [0, 1], "name": ""}, 'name="" says nothing. Leave it out'),
        ({"partition": "zigzag", "name": "mine"}, 'name="mine" with partition="zigzag"; a name is'),
        ({"partition": [0, 1], "partition_k": [0, 1]}, None),
    ],
)
def test_what_says_nothing_of_owners_is_refused(arguments, words):
    arguments = {"cp_size": 2, **arguments}
    if words is None:
        assert rs.plan(LAYOUT, **arguments).verify()
        return
    with pytest.raises((ValueError, TypeError), match=words):
        rs.plan(LAYOUT, **arguments)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r'"zagzig" is unknown.*zigzag'):
        rs.partition("zagzig", LAYOUT, 2)


def test_a_plan_tells_what_another_does_differently():
    plan = rs.plan(LAYOUT, cp_size=2)
    assert plan.diff(rs.plan(LAYOUT, cp_size=2)) == []
    assert plan.diff(rs.plan(LAYOUT, cp_size=3)) == ["cp_size is 2; the other's is 3"]
    masked = plan.diff(rs.plan(LAYOUT, cp_size=2, mask=rs.Mask.full()))
    assert masked[0] == "mask is causal; the other's is full"
    gathered = plan.diff(rs.plan(LAYOUT, cp_size=2, comm="all_gather"))
    assert gathered[0] == "comm is p2p; the other's is all_gather"
    assert "rank 0 has 2 steps; the other's has 1" in gathered
    runs = plan.diff(rs.plan(LAYOUT, cp_size=2, partition="contiguous"))
    assert any(line.startswith("rank 0 owns of q: Segment(seq=0") for line in runs)
    assert any(line.startswith("rank 0 owns of q: ") and line.endswith(" more") for line in runs)
    back = rs.plan(LAYOUT, cp_size=2, partition="contiguous").diff(plan)
    assert any(line.startswith("rank 0 owns of q: not Segment(seq=0") for line in back)
    striped = rs.plan(rs.PackedLayout.from_lengths([3] * 40), cp_size=2, partition="striped")
    many = rs.plan(striped.layout_q, cp_size=2).diff(striped)
    assert any(line.endswith(" more") for line in many)
    with pytest.raises(TypeError, match="other is a str; expected a Plan"):
        plan.diff("zigzag")


def test_a_plan_that_was_refused_can_be_shown():
    """As pytest and debuggers do with what a traceback holds."""
    try:
        rs.plan(LAYOUT, cp_size=2, comm="carrier pigeon")
    except ValueError as error:
        frames, trace = [], error.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
    shown = [repr(value) for frame in frames for value in frame.f_locals.values()]
    assert "<Plan that was not made>" in shown
