"""plan.verify() accepts every plan that is right and refuses every plan that is not."""

import json

import numpy as np
import pytest
from assertions import assert_results_close, noted
from hypothesis import event, given
from hypothesis import strategies as st
from independent import visible_pairs
from ringside.testing import Results, strategies

import ringside as rs

CASES = noted(strategies.cases())
SMALL = noted(
    strategies.cases(
        layouts_q=strategies.layouts(lengths=strategies.lengths(max_sequences=2, max_length=8)),
        cp_sizes=strategies.cp_sizes(max_size=4),
    )
)


@given(CASES)
def test_every_plan_is_proved_and_the_proof_counts_what_there_is(case):
    plan = case.plan()
    proof = plan.verify()
    assert proof.rows == case.layout_q.num_rows + case.keys.num_rows
    assert proof.pairs == visible_pairs(case.mask, case.layout_q, case.keys)
    steps = [step for rank in range(case.cp_size) for step in plan.steps(rank)]
    assert proof.tiles == sum(len(step.tiles) for step in steps)
    assert proof.messages == sum(len(step.sends) for step in steps)
    assert proof.messages == sum(len(step.receives) for step in steps)


@given(CASES)
def test_a_plan_remembers_what_it_was_made_for(case):
    plan = case.plan()
    assert (plan.layout_q, plan.layout_k, plan.mask) == (case.layout_q, case.keys, case.mask)
    assert (plan.num_heads, plan.num_kv_heads) == (case.num_heads, case.num_kv_heads)
    assert (plan.cp_size, plan.comm) == (case.cp_size, case.comm)
    named = isinstance(case.partition, str)
    assert plan.partition == (case.partition if named else "custom")
    assert all(len(plan.steps(rank)) == plan.num_steps for rank in range(case.cp_size))


@given(CASES)
def test_the_same_arguments_make_the_same_plan(case):
    assert case.plan() == case.plan()
    assert case.plan() != case.replace(mask=rs.Mask(window_size=(987, 654))).plan()


@given(CASES)
def test_tiles_name_resident_rows_of_one_document(case):
    plan = case.plan()
    for rank in range(case.cp_size):
        for step in plan.steps(rank):
            resident = {}
            for side, segments in (("q", step.q), ("k", step.kv)):
                rows = [(s.seq, p) for s in segments for p in s.positions.tolist()]
                resident[side] = dict(enumerate(rows))
            for tile in step.tiles:
                for side, s in (("q", tile.q), ("k", tile.k)):
                    named = [(s.seq, p) for p in s.positions.tolist()]
                    assert [resident[side].get(s.row + i) for i in range(s.len)] == named
                assert tile.q.seq == tile.k.seq


@given(CASES)
def test_json_and_back_is_the_same_plan(case):
    plan = case.plan()
    again = rs.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()


# --- broken plans


def edited(plan, edit):
    """from_json of the plan's JSON after edit(data)."""
    data = json.loads(plan.to_json())
    edit(data)
    return rs.Plan.from_json(json.dumps(data))


CELLS = st.one_of(
    st.integers(-2, 4),
    st.sampled_from([2**31 - 1, -(2**31), 2**30, -(2**63), 2**40]),
)


@given(SMALL, st.data())
def test_a_corrupted_plan_is_refused_or_still_right(case, data):
    """Flip, drop, double or swap anything in the tables: never a crash, never a wrong result."""
    draw = data.draw

    def corrupt(plan):
        tables = [name for name, table in plan["tables"].items() if table["rows"]]
        table = plan["tables"][draw(st.sampled_from(sorted(tables)), label="table")]
        rows = table["rows"]
        row = draw(st.integers(0, len(rows) - 1), label="row")
        change = draw(st.sampled_from(["nudge", "set", "drop", "double", "swap", "clear"]))
        if change == "nudge":
            column = draw(st.integers(0, len(rows[row]) - 1), label="column")
            rows[row][column] += draw(st.sampled_from([1, -1, 2]), label="by")
        elif change == "set":
            column = draw(st.integers(0, len(rows[row]) - 1), label="column")
            rows[row][column] = draw(CELLS, label="to")
        elif change == "drop":
            del rows[row]
        elif change == "double":
            rows.insert(row, list(rows[row]))
        elif change == "swap":
            other = draw(st.integers(0, len(rows) - 1), label="with")
            rows[row], rows[other] = rows[other], rows[row]
        else:
            rows.clear()

    def corrupt_some(plan):
        for _ in range(draw(st.integers(1, 2), label="changes")):
            if any(table["rows"] for table in plan["tables"].values()):
                corrupt(plan)

    try:
        plan = edited(case.plan(), corrupt_some)
    except (rs.PlanError, ValueError) as error:
        event(type(error).__name__)
        assert str(error)
        return
    event("accepted")
    q, k, v, dout = arrays = case.arrays()
    out, lse = plan.attention(q, k, v, softmax_scale=case.softmax_scale)
    gradients = plan.attention_backward(
        dout, q, k, v, out, lse, softmax_scale=case.softmax_scale
    )
    assert_results_close(case, Results(out, lse, *gradients), case.by_definition(arrays), arrays)


RING = rs.plan(rs.PackedLayout([0, 8]), cp_size=2, partition="contiguous")


def row_of(data, table, **cells):
    """The index of the first row of a table with these cells."""
    columns = data["tables"][table]["columns"]
    for i, row in enumerate(data["tables"][table]["rows"]):
        if all(row[columns.index(name)] == value for name, value in cells.items()):
            return i
    raise KeyError(cells)


def cell(data, table, row, column):
    columns = data["tables"][table]["columns"]
    return data["tables"][table]["rows"][row], columns.index(column)


def drop_send(data):
    del data["tables"]["messages"]["rows"][row_of(data, "messages", direction=0, rank=0)]


def drop_receive(data):
    del data["tables"]["messages"]["rows"][row_of(data, "messages", direction=1, rank=1)]


def send_less(data):
    row, column = cell(data, "messages", row_of(data, "messages", direction=0, rank=0), "rows")
    row[column] -= 1


def send_to_a_stranger(data):
    row, column = cell(data, "messages", row_of(data, "messages", direction=0, rank=0), "peer")
    row[column] = 2


def forget_a_key(data):
    row, column = cell(data, "tiles", 0, "k_len")
    row[column] -= 1


def compute_twice(data):
    rows = data["tables"]["tiles"]["rows"]
    rows.insert(1, list(rows[0]))


def own_twice(data):
    row, column = cell(data, "homes", 1, "q_shard")
    row[column] = data["tables"]["homes"]["rows"][0][column]


def misname_rows(data):
    row, column = cell(data, "tiles", 0, "q_pos")
    row[column] += 1


def see_nothing(data):
    tiles = data["tables"]["tiles"]["rows"]
    tiles.insert(1, [tiles[0][0], 0, 0, 1, 0, 1, 1, 1, 1, 1])


def leave_the_buffer(data):
    row, column = cell(data, "tiles", 0, "k_len")
    row[column] += 1


def head_nobody_has(data):
    row, column = cell(data, "steps", 0, "q_head_end")
    row[column] = 2


def skip_a_head(data):
    row, column = cell(data, "steps", 0, "q_head_end")
    row[column] = 0


BROKEN = [
    (drop_send, "never comes: deadlock|what meets it|of which only"),
    (drop_receive, "never comes: deadlock|what meets it|of which only"),
    (send_less, "what meets it is"),
    (send_to_a_stranger, "there are 2 ranks"),
    (forget_a_key, "computed 0 times"),
    (compute_twice, "computed 2 times"),
    (own_twice, "owned by rank"),
    (misname_rows, "holds position 0 of sequence 0, not position 1"),
    (see_nothing, "no query sees any key"),
    (leave_the_buffer, "lies outside the resident buffer"),
    (head_nobody_has, "holds heads"),
    (skip_a_head, "computed 0 times|arrive"),
]


@pytest.mark.parametrize(("edit", "says"), BROKEN, ids=[edit.__name__ for edit, _ in BROKEN])
def test_verify_names_what_is_wrong(edit, says):
    with pytest.raises(rs.PlanError, match=says):
        edited(RING, edit)


def test_verify_says_when_ranks_wait_for_each_other():
    """Both ranks post their receive a step before the other sends: a hang on any real network."""
    layout = rs.PackedLayout([0, 9])
    plan = rs.plan(layout, mask=rs.Mask.full(), cp_size=3, partition="contiguous")

    def send_a_step_late(data):
        rows = data["tables"]["messages"]["rows"]
        for row in rows:
            if row[0] == 0 and row[1] == 1 and row[2] == 0:
                row[1] = 2

    with pytest.raises(rs.PlanError, match="deadlock|what meets it"):
        edited(plan, send_a_step_late)


def test_a_plan_without_ranks_is_refused():
    plan = rs.plan(rs.PackedLayout([0]), cp_size=1)

    def clear(data):
        for table in data["tables"].values():
            table["rows"] = []

    with pytest.raises(rs.PlanError, match="no ranks"):
        edited(plan, clear)


def test_kv_heads_that_are_not_resident_are_missed():
    plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2, comm="a2a", num_heads=4, num_kv_heads=2)

    def compute_other_heads(data):
        steps = data["tables"]["steps"]
        for row in steps["rows"]:
            begin, end = (steps["columns"].index(f"kv_head_{end}") for end in ("begin", "end"))
            row[begin], row[end] = 0, 1
        for row in data["tables"]["messages"]["rows"]:
            if row[4] == 1:
                row[7], row[8] = 0, 1

    with pytest.raises(rs.PlanError, match=r"computes heads \[2, 4\) but holds only kv heads"):
        edited(plan, compute_other_heads)


# --- user segments


@given(
    st.data(),
    strategies.layouts(lengths=strategies.lengths(min_sequences=1)),
    strategies.cp_sizes(),
    strategies.comms(),
)
def test_your_own_segments_make_a_plan_like_any_other(data, layout, cp_size, comm):
    shards = data.draw(strategies.segments(layout=layout, cp_size=cp_size))
    a2a_size = data.draw(strategies.a2a_sizes(comm=comm, cp_size=cp_size))
    plan = rs.plan(layout, partition=shards, comm=comm, a2a_size=a2a_size)
    assert plan.cp_size == cp_size
    assert plan.verify().pairs == visible_pairs(plan.mask, layout, layout)
    for rank, wanted in enumerate(shards):
        got = plan.shards_q(rank)
        key = [(s.seq, s.pos, s.len, s.stride) for s in wanted]
        assert [(s.seq, s.pos, s.len, s.stride) for s in got] == key


@given(strategies.layouts(), strategies.cp_sizes(), st.sampled_from(rs.PARTITIONS))
def test_a_named_partition_handed_over_as_segments_is_the_same(layout, cp_size, name):
    named = rs.plan(layout, cp_size=cp_size, partition=name)
    handed = rs.plan(layout, partition=[named.shards_q(rank) for rank in range(cp_size)])
    for rank in range(cp_size):
        assert handed.position_ids(rank).tolist() == named.position_ids(rank).tolist()
        assert [step.tiles for step in handed.steps(rank)] == [
            step.tiles for step in named.steps(rank)
        ]


def test_ranks_may_own_nothing():
    layout = rs.PackedLayout([0, 3])
    plan = rs.plan(layout, partition=[[], [rs.Segment(0, 0, 3)], []], comm="all_gather")
    plan.verify()
    assert [len(plan.row_indices(rank)) for rank in range(3)] == [0, 3, 0]
    q = np.random.default_rng(0).normal(size=(3, 1, 2))
    np.testing.assert_allclose(plan.attention(q, q, q)[0], rs.attention(q, q, q, layout)[0])
