"""Where things are in a plan, as attributes: whose keys a step has, where a plan is wrong."""

import copy
import json
import pickle

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import strategies


@given(strategies.plans())
@settings(max_examples=50)
def test_owners_are_those_whose_shards_the_keys_come_from(plan):
    rows = np.arange(plan.layout_k.num_rows)
    home = np.empty(plan.layout_k.num_rows, int)
    for rank in range(plan.cp_size):
        home[plan.shard(rows, rank, side="k")] = rank
    starts = plan.layout_k.cu_seqlens_padded
    for rank in range(plan.cp_size):
        for step in plan.steps(rank):
            held = [starts[segment.seq] + segment.positions for segment in step.kv]
            owners = np.unique(home[np.concatenate(held)]).tolist() if held else []
            assert step.owners == tuple(owners)
            assert step.owner == (owners[0] if len(owners) == 1 else None)


def test_owners_of_a_ring_go_round_and_a_rank_without_rows_owns_nothing():
    plan = rs.plan(rs.PackedLayout([0, 16]), cp_size=4)
    assert [[step.owner for step in plan.steps(rank)] for rank in range(4)] == [
        [(rank - step) % 4 for step in range(4)] for rank in range(4)
    ]
    plan = rs.plan(rs.PackedLayout([0, 1]), cp_size=2, partition="contiguous")
    assert [plan.steps(rank)[0].owner for rank in range(2)] == [None, 1]
    assert [plan.steps(rank)[0].owners for rank in range(2)] == [(), (1,)]


@given(strategies.masks(), st.integers(0, 40), st.integers(0, 40), st.data())
def test_what_many_queries_see_is_what_each_is_allowed(mask, len_q, len_k, data):
    queries = data.draw(st.lists(st.integers(0, len_q - 1), max_size=9) if len_q else st.just([]))
    begin, end = mask.visible(np.array(queries, np.int64), len_q, len_k)
    assert begin.dtype == end.dtype == np.int32 and len(begin) == len(end) == len(queries)
    for q, first, behind in zip(queries, begin.tolist(), end.tolist(), strict=True):
        keys = [k for k in range(len_k) if mask.allows(q, k, len_q, len_k)]
        assert keys == list(range(first, behind))
        assert (first, behind) == mask.visible(q, len_q, len_k)


@given(strategies.masks(), st.lists(st.tuples(*[st.integers(0, 20)] * 3), min_size=1, max_size=9))
def test_each_query_may_have_lengths_of_its_own(mask, asked):
    asked = [(q, q + more, len_k) for q, more, len_k in asked if more]
    q, len_q, len_k = (np.array(x, int) for x in np.array(asked, int).reshape(-1, 3).T)
    found = np.transpose(mask.visible(q, len_q, len_k)).tolist()
    assert [tuple(x) for x in found] == [mask.visible(*one) for one in asked]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (([1, 2], [1, 2, 3], 4), rs.InvalidArgument, "len_q has 3 entries; expected one for all"),
        (([0.5], 4, 4), TypeError, "q has dtype float64; expected integers"),
        (([1], 4, [-1]), rs.InvalidArgument, "lengths cannot be negative"),
        ((np.zeros((2, 2), int), 4, 4), rs.InvalidArgument, r"q has shape \(2, 2\)"),
        (([2**40], 4, 4), rs.InvalidArgument, r"q\[0\]=1099511627776 does not fit int32"),
        ((1, [4], 4), TypeError, "len_q is a list; expected an integer"),
        ((25, 20, 20), rs.InvalidArgument, "q=25 is no query of len_q=20; expected at least 0"),
        ((-1, 20, 20), rs.InvalidArgument, "q=-1 is no query of len_q=20; expected at least 0"),
        (([3, 4], 4, 20), rs.InvalidArgument, "q=4 is no query of len_q=4; .*Padding sees nothing"),
        (([0, 1], [1, 1], 2), rs.InvalidArgument, "q=1 is no query of len_q=1"),
        ((0, 0, 2), rs.InvalidArgument, "q=0 is no query of len_q=0"),
    ],
)
def test_queries_that_are_none_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        rs.Mask.causal().visible(*arguments)


LAYOUT = rs.PackedLayout([0, 6, 10], [0, 8, 12])
PLAN = rs.plan(LAYOUT, cp_size=2)


def refused(change):
    """The PlanError of PLAN with something changed in the rows of its tables."""
    data = json.loads(PLAN.to_json())
    change({name: table["rows"] for name, table in data["tables"].items()})
    with pytest.raises(rs.PlanError) as caught:
        rs.Plan.from_json(json.dumps(data))
    return caught.value


def place(error):
    return error.rank, error.step, error.tile, error.row, error.key


def table(name):
    """(number, {column: value}) of each row."""
    columns, cells = PLAN.tables()[name]
    return [(i, dict(zip(columns, row, strict=True))) for i, row in enumerate(cells.tolist())]


def set_cell(name, row, column, value):
    at = PLAN.tables()[name][0].index(column)

    def change(tables):
        tables[name][row][at] = value

    return change


def tiles_of(rank, step):
    """(number, {column: value}) of the tiles of a rank's step."""
    here = [x["tile_list"] for _, x in table("steps") if (x["rank"], x["step"]) == (rank, step)]
    return [(i, x) for i, x in table("tiles") if [x["tile_list"]] == here]


def lost_tile(tables):
    del tables["tiles"][tiles_of(1, 1)[1][0]]  # queries of document 1


def test_a_pair_that_nobody_computes_is_named_by_its_rows():
    error = refused(lost_tile)
    assert place(error)[:3] == (None, None, None)
    found = PLAN.who(error.row, error.key).places
    assert [(x.rank, x.step, x.tile) for x in found] == [(1, 1, 1)]
    assert f"query {error.row - 8} of sequence 1 sees key {error.key - 8}" in str(error)


@pytest.mark.parametrize(("rank", "step"), [(0, 0), (1, 1)])
def test_a_tile_that_reads_other_rows_is_named(rank, step):
    number, tile = tiles_of(rank, step)[1]
    error = refused(set_cell("tiles", number, "k_pos", tile["k_pos"] + 1))
    assert place(error)[:3] == (rank, step, 1)
    assert str(error).startswith(f"rank {rank} step {step} tile 1: key row")
    owner = PLAN.steps(rank)[step].owner
    assert error.row is None and error.key in PLAN.row_indices(owner, side="k")
    error = refused(set_cell("tiles", number, "q_pos", tile["q_pos"] + 1))
    assert error.key is None and error.row in PLAN.row_indices(rank)


def test_a_row_that_two_own_is_named():
    other = table("homes")[1][1]
    number, segment = next(x for x in table("shards") if x[1]["shard"] == other["q_shard"])
    error = refused(set_cell("shards", number, "pos", segment["pos"] - 1))
    assert place(error) == (1, None, None, segment["pos"] - 1, None)
    assert "is owned by rank 0 and by rank 1" in str(error)
    number, segment = next(x for x in table("shards") if x[1]["shard"] == other["kv_shard"])
    error = refused(set_cell("shards", number, "pos", segment["pos"] - 1))
    assert place(error) == (1, None, None, None, segment["pos"] - 1)


def message_of(rank, direction):
    return next(
        x for x in table("messages") if (x[1]["rank"], x[1]["direction"]) == (rank, direction)
    )


def test_a_message_beyond_its_buffer_is_named():
    number, message = message_of(1, 1)
    error = refused(set_cell("messages", number, "row", message["row"] + 1))
    assert place(error) == (1, 1, None, None, None)


def test_rows_that_arrive_at_another_place_are_named():
    home = table("homes")[0][1]["kv_shard"]
    number = next(i for i, x in table("steps") if (x["rank"], x["step"]) == (0, 1))
    error = refused(set_cell("steps", number, "kv_shard", home))
    assert place(error)[:3] == (0, 1, None) and error.row is None
    assert f"claims global row {error.key}" in str(error)


def test_a_deadlock_is_named():
    error = refused(lambda tables: tables["messages"].pop(message_of(0, 0)[0]))
    assert (error.rank, error.step) == (1, 1) and "deadlock" in str(error)


def test_the_place_travels_with_the_error_and_others_have_none():
    error = refused(lost_tile)
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert place(other) == place(error) and str(other) == str(error)
    assert place(rs.PlanError("mine")) == (None,) * 5
    with pytest.raises(AttributeError):
        error.rank = 5


@given(strategies.plans(), st.data())
@settings(max_examples=50)
def test_a_part_of_a_plan_is_refused_where_who_says_that_a_pair_is_computed_later(plan, data):
    steps = data.draw(st.integers(0, plan.num_steps))
    part = plan.first_steps(steps)
    try:
        part.verify()
    except rs.PlanError as error:
        if error.row is not None and error.key is not None:
            later = {found.step for found in plan.who(error.row, error.key).places}
            assert max(later) >= steps
