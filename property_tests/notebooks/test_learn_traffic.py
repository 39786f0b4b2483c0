"""What travels, in notebook 6: counted as plans count it, and refused where it cannot be."""

import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside import learn

LAYOUT = rs.PackedLayout.from_lengths([700, 300, 24])


@pytest.mark.parametrize("comm", ["p2p", "all_gather", "a2a", "a2a+p2p"])
def test_traffic_by_ranks_is_that_of_built_plans(comm):
    found = learn.traffic_by_ranks(LAYOUT, [2, 4, 6], [comm], num_heads=12, num_kv_heads=4)[comm]
    for size, counted in found.items():
        groups = {"a2a_size": {2: 2, 4: 4, 6: 3}[size]} if comm == "a2a+p2p" else {}
        plan = rs.plan(LAYOUT, cp_size=size, comm=comm, num_heads=12, num_kv_heads=4, **groups)
        cost = plan.cost()
        each = cost.bytes_received.sum(axis=1) + cost.result_bytes_received
        assert counted == learn.bytes_received(cost) == max(each) > 0


def test_the_least_is_the_least():
    costs = {n: rs.estimate(LAYOUT, cp_size=4, comm=n, num_heads=4) for n in ("p2p", "a2a")}
    numbers = {name: learn.bytes_received(cost) for name, cost in costs.items()}
    assert learn.least_traffic(costs) == min(numbers, key=numbers.get)


@settings(max_examples=8)
@given(rank=st.integers(0, 3), comm=st.sampled_from(["p2p", "all_gather", "a2a", "a2a+p2p"]))
def test_the_picture_of_holdings_has_all_owners_of_the_keys(rank, comm):
    groups = {"a2a_size": 2} if comm == "a2a+p2p" else {}
    plan = rs.plan(LAYOUT, mask=rs.Mask.full(), cp_size=4, comm=comm, num_heads=4, **groups)
    axis = learn.figure_of_holdings({comm: plan}, rank=rank).axes[0]
    held = [len(part.get_paths()) for part in axis.collections][1::2]  # every other one is grey
    assert len(held) == plan.num_steps
    assert sum(held) == 4  # each owner once, whatever the steps


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: learn.figure_of_holdings({}, rank=0), "got rank 0 of 0 plans"),
        (lambda: learn.figure_of_traffic({}), "got no costs"),
        (lambda: learn.figure_of_need({}, bytes_per_row=512), "got no costs"),
        (lambda: learn.figure_of_traffic_by_ranks({}), "got no lines"),
        (lambda: learn.least_traffic({}), "got no costs"),
        (lambda: learn.traffic_by_ranks(LAYOUT, [0], ["p2p"]), r"got cp_sizes \[0\]"),
    ],
)
def test_nothing_to_show_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_need_is_counted_of_all_ranks():
    ring = rs.estimate(LAYOUT, cp_size=4)
    fetch = rs.estimate(LAYOUT, cp_size=4, comm="fetch", stages=1)
    costs, arrived = {"ring": ring, "fetch": fetch}, 3 * LAYOUT.num_rows  # of others, to each rank
    (axis,) = learn.figure_of_need(costs, bytes_per_row=2 * 128 * 2).axes
    assert f"{arrived:,}" in axis.texts[0].get_text()
    widths = [patch.get_width() for patch in axis.patches[:4]]
    assert widths[:2] == [ring.rows_needed.sum(), arrived - ring.rows_needed.sum()]
    assert widths[2] == ring.rows_needed.sum() and 0 <= widths[3] < widths[1]
