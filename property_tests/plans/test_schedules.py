"""What a rank does in a pass, as users see it: list of operations, counted again in Python."""

from collections import Counter

import numpy as np
import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st
from ringside._bench.gpu.ranks import PACKS
from ringside.testing import strategies

SIZES = {"head_dim": 5, "head_dim_v": 3, "bytes_per_element": 2}
QK, V, BYTES = SIZES["head_dim"], SIZES["head_dim_v"], SIZES["bytes_per_element"]
TRAVELLING_BYTES = {  # of one head of one row, by pass
    False: {"queries": QK * BYTES, "keys": (QK + V) * BYTES, "results": V * BYTES + 4},
    True: {
        "queries": (QK + V) * BYTES + 8,  # with dout, and float32 lse and delta
        "keys": (QK + V) * BYTES,
        "query_gradients": QK * 4,
        "key_gradients": (QK + V) * 4,
    },
}


def schedules(plan: rs.Plan, backward: bool):
    return [plan.schedule(rank, backward=backward) for rank in range(plan.cp_size)]


def shape(message: dict) -> tuple:
    return message["payload"], message["rows"], message["heads"]


@given(strategies.cases(), st.booleans())
def test_both_ends_name_the_same_messages_in_the_same_order(case, backward):
    sent, received = {}, {}
    for rank, operations in enumerate(schedules(case.plan(), backward)):
        for operation in operations:
            for m in operation.sends:
                sent.setdefault((rank, m["peer"], m["payload"]), []).append(shape(m))
            for m in operation.receives:
                received.setdefault((m["peer"], rank, m["payload"]), []).append(shape(m))
    assert sent == received


@given(strategies.cases(), st.booleans())
def test_every_step_with_tiles_is_computed_once(case, backward):
    plan = case.plan()
    for rank, operations in enumerate(schedules(plan, backward)):
        steps = [o.step for o in operations if o.kind == "compute"]
        want = [i for i, step in enumerate(plan.steps(rank)) if step.tiles]
        assert steps == (want[::-1] if backward else want)


@given(strategies.cases(), st.booleans())
def test_waits_point_back_at_the_other_stream(case, backward):
    for operations in schedules(case.plan(), backward):
        for i, operation in enumerate(operations):
            for before in operation.after:
                assert before < i
                assert operations[before].stream != operation.stream


@given(strategies.cases())
def test_the_cost_of_the_backward_pass_is_that_of_its_messages(case):
    plan = case.plan()
    cost = plan.cost(**SIZES)
    for name in ("sends", "receives"):
        want = np.zeros((plan.cp_size, plan.num_steps), np.int64)
        for rank, operations in enumerate(schedules(plan, True)):
            for operation in operations:
                for m in getattr(operation, name):
                    cells = m["rows"] * (m["heads"][1] - m["heads"][0])
                    want[rank, operation.step] += cells * TRAVELLING_BYTES[True][m["payload"]]
        got = cost.backward_bytes_sent if name == "sends" else cost.backward_bytes_received
        assert got.tolist() == want.tolist()


@given(strategies.cases())
def test_the_cost_of_the_forward_pass_is_that_of_its_messages(case):
    plan = case.plan()
    cost = plan.cost(**SIZES)
    for rank, operations in enumerate(schedules(plan, False)):
        total = Counter()
        for operation in operations:
            for m in operation.sends:
                cells = m["rows"] * (m["heads"][1] - m["heads"][0])
                total[m["payload"] == "results"] += cells * TRAVELLING_BYTES[False][m["payload"]]
        assert total[False] == cost.bytes_sent[rank].sum()
        assert total[True] == cost.result_bytes_sent[rank]


def test_the_proof_counts_the_operations_of_both_passes():
    plan = rs.plan(rs.PackedLayout([0, 40, 51]), cp_size=4)
    both = schedules(plan, False) + schedules(plan, True)
    assert plan.verify().operations == sum(map(len, both))


def test_memory_of_one_rank_is_that_of_its_sums():
    plan = rs.plan(rs.PackedLayout([0, 10]), cp_size=1, num_heads=2)
    cost = plan.cost(**SIZES)
    assert cost.workspace_bytes.tolist() == [10 * 2 * (V + 1) * 4]
    assert cost.backward_workspace_bytes.tolist() == [10 * 2 * (QK + QK + V) * 4]


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_the_plan_does_not_have_is_refused(rank):
    plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    with pytest.raises(rs.InvalidArgument, match="the plan has ranks 0 to 1"):
        plan.schedule(rank)


def test_an_owner_of_what_all_others_fetch_computes_while_their_gradients_travel():
    """The rank with the first rows of the one long document, to which nobody's rows are needed."""
    layout = rs.PackedLayout.from_lengths(PACKS["long tail"], pad_to_multiple_of=8)
    plan = rs.plan(layout, cp_size=4, partition="balanced", comm="fetch")
    plan.verify()
    cost = plan.cost()
    rank = int(np.argmin(cost.bytes_received.sum(axis=1)))
    operations = plan.schedule(rank, backward=True)
    computed = [i for i, o in enumerate(operations) if o.kind == "compute"]
    waits = [i for i, o in enumerate(operations) if o.kind == "combine" and o.after]
    assert cost.bytes_received[rank].sum() == 0 < cost.bytes_sent[rank].sum()
    assert computed and waits and min(waits) > max(computed)
