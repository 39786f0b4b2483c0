"""learn.partials: the steps' results add up to the plan's, and types round as they should."""

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside import learn
from ringside.testing import strategies

PLAN = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
X = np.zeros((8, 1, 2))


@settings(max_examples=60)
@given(
    noted(
        strategies.cases(
            comms=st.sampled_from(["p2p", "all_gather", "fetch"]),
            cp_sizes=strategies.cp_sizes(max_size=4),
            heads=st.just((1, 1)),
            softmax_scales=st.none(),
        )
    )
)
def test_partial_results_add_up_to_the_plan(case):
    plan, arrays = case.plan(), case.arrays()
    out, _ = plan.attention(*arrays[:3])
    for rank in range(plan.cp_size):
        parts = learn.partials(plan, *arrays[:3], rank=rank)
        assert parts.shares.shape[0] == plan.num_steps
        total = parts.merged("float64")[-1] if plan.num_steps else np.zeros((0, 1))
        np.testing.assert_allclose(total, plan.shard(out, rank)[:, 0], rtol=0, atol=1e-13)
        sums = parts.shares.sum(axis=0)
        assert (np.isclose(sums, 1) | (sums == 0)).all()


def test_the_order_of_steps_changes_roundings_only():
    q, k, v = np.random.default_rng(0).normal(size=(3, 64, 1, 4))
    plan = rs.plan(rs.PackedLayout([0, 64]), mask=rs.Mask.full(), cp_size=8)
    parts = learn.partials(plan, q, k, v, rank=3)
    turned = parts.reordered(range(7, -1, -1))
    np.testing.assert_allclose(
        parts.merged("float64")[-1], turned.merged("float64")[-1], rtol=0, atol=1e-14
    )
    assert parts.errors("bfloat16")[-1] > 1e4 * parts.errors("float32")[-1] > 0
    assert parts.errors("float64").max() == 0
    assert parts.errors("bfloat16")[-1] != turned.errors("bfloat16")[-1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: learn.partials(PLAN, X, X, X, rank=2), r"got rank 2; expected 0 to 1"),
        (
            lambda: learn.partials(
                rs.plan(rs.PackedLayout([0, 8]), cp_size=2, comm="a2a"), X, X, X, rank=0
            ),
            "got a plan over a2a, whose ranks trade queries",
        ),
        (lambda: learn.partials(PLAN, X, X, X, rank=0).merged("int8"), "got dtype 'int8'"),
        (lambda: learn.partials(PLAN, X, X, X, rank=0).reordered([0, 0]), r"got order \[0, 0\]"),
        (lambda: learn.partials(PLAN, X, X, X, rank=0).first_rows(9), "got 9 rows"),
        (lambda: learn.figure_of_errors_by_step({}), "got no errors"),
    ],
)
def test_what_does_not_fit_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
