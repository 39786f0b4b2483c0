"""learn.moves: an exchange as a list of indices is Plan.exchange, and its transpose the other."""

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from hypothesis import given, settings
from ringside import learn
from ringside.testing import strategies

PLAN = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)


def end_to_end(buffers):
    return np.concatenate([np.zeros(0), *(x.ravel() for x in buffers)])


@settings(max_examples=60)
@given(noted(strategies.cases(cp_sizes=strategies.cp_sizes(max_size=4))))
def test_moves_are_the_exchange_and_its_transpose(case):
    plan, rng = case.plan(), np.random.default_rng(case.seed)
    for operand in ("q", "kv"):
        held = _home(plan, operand, rng)
        for step in range(plan.num_steps):
            found = learn.moves(plan, step, operand)
            x, moved = end_to_end(held), plan.exchange(step, operand, held)
            np.testing.assert_array_equal(x[found.source], end_to_end(moved))
            y = [rng.integers(-9, 10, size=a.shape).astype(float) for a in moved]
            back = np.zeros(len(found.rank_before))
            np.add.at(back, found.source, end_to_end(y))
            np.testing.assert_array_equal(
                back, end_to_end(plan.exchange_transposed(step, operand, y))
            )
            assert [np.count_nonzero(found.rank_after == r) for r in range(plan.cp_size)] == [
                a.size for a in moved
            ]
            held = moved


def _home(plan, operand, rng):
    heads = plan.num_heads if operand == "q" else plan.num_kv_heads
    shards = plan.shards_q if operand == "q" else plan.shards_k
    rows = [sum(s.len for s in shards(rank)) for rank in range(plan.cp_size)]
    return [rng.integers(-9, 10, size=(n, heads, 1)).astype(float) for n in rows]


@pytest.mark.parametrize("step", [-1, 2])
def test_a_step_that_the_plan_does_not_have_is_refused(step):
    with pytest.raises(ValueError, match=rf"got step {step}; expected 0 to 1\. Pass"):
        learn.moves(PLAN, step)


def test_an_unknown_operand_is_refused():
    with pytest.raises(ValueError, match=r"got operand 'v'; expected \"q\" or \"kv\"\. Pass"):
        learn.moves(PLAN, 0, "v")


def test_a_ring_sends_to_the_next_rank_and_its_transpose_to_the_one_before():
    between = learn.moves(rs.plan(rs.PackedLayout([0, 12]), cp_size=3), 1).between_ranks
    assert between.tolist() == [[0, 4, 0], [0, 0, 4], [4, 0, 0]]
