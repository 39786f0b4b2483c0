"""A plan with a fault is refused, and verify() names the first offending row, message or tile."""

import json

import pytest
import ringside as rs
from assertions import assert_results_close, noted
from hypothesis import event, given
from hypothesis import strategies as st
from ringside.testing import Results, strategies

SMALL = noted(
    strategies.cases(
        layouts_q=strategies.layouts(lengths=strategies.lengths(max_sequences=2, max_length=8)),
        cp_sizes=strategies.cp_sizes(max_size=4),
    )
)


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
    gradients = plan.attention_backward(dout, q, k, v, out, lse, softmax_scale=case.softmax_scale)
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
    (drop_send, "never comes: deadlock"),
    (drop_receive, "of which only 0 arrive"),
    (send_less, "what meets it is"),
    (send_to_a_stranger, "there are 2 ranks"),
    (forget_a_key, "computed 0 times"),
    (compute_twice, "computed 2 times"),
    (own_twice, "owned by rank"),
    (misname_rows, "holds position 0 of sequence 0, not position 1"),
    (see_nothing, "no query sees any key"),
    (leave_the_buffer, "lie outside the resident buffer"),
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

    with pytest.raises(rs.PlanError, match=r"deadlock|what meets it"):
        edited(plan, send_a_step_late)


@pytest.mark.parametrize("comm", ["all_gather", "a2a"])
def test_verify_says_when_rows_arrive_in_each_others_place(comm):
    """Everything is sent and received, all buffers are full, but of the wrong rows."""
    plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2, comm=comm, num_heads=2)

    def swap_places(data):
        columns = data["tables"]["messages"]["columns"]
        place = columns.index("row")
        keys = [columns.index(name) for name in ("rank", "direction", "operand")]
        received = [
            row
            for row in data["tables"]["messages"]["rows"]
            if [row[key] for key in keys] == [0, 1, 1]  # rank 0 receives K/V
        ]
        first, second = received
        first[place], second[place] = second[place], first[place]

    with pytest.raises(rs.PlanError, match=r"claims global row \d+ but global row \d+ arrives"):
        edited(plan, swap_places)


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
