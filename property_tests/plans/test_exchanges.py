"""Each exchange moves what it says, and its transpose is its transpose: <E x, y> == <x, E' y>.

The data are small integers, so every sum is exact and equality means equality.
"""

import numpy as np
from assertions import noted
from hypothesis import given
from ringside.testing import strategies

CASES = noted(strategies.cases())
OPERANDS = ("q", "kv")


def home(plan, rank, operand):
    """(segments, heads) of what a rank owns."""
    if operand == "q":
        return plan.shards_q(rank), (0, plan.num_heads)
    return plan.shards_k(rank), (0, plan.num_kv_heads)


def resident(plan, rank, step, operand):
    """(segments, heads) of what a rank holds before a step; step num_steps is the end."""
    if step == 0:
        return home(plan, rank, operand)
    before = plan.steps(rank)[step - 1]
    return (before.q, before.heads) if operand == "q" else (before.kv, before.kv_heads)


def shape(plan, rank, step, operand, dim):
    segments, (begin, end) = resident(plan, rank, step, operand)
    return sum(s.len for s in segments), end - begin, dim


def integers(rng, plan, step, operand):
    """A buffer of small integers on each rank, shaped as what is resident before the step."""
    return [
        rng.integers(-4, 5, size=shape(plan, rank, step, operand, 2)).astype(float)
        for rank in range(plan.cp_size)
    ]


def inner(xs, ys):
    return sum(float((x * y).sum()) for x, y in zip(xs, ys, strict=True))


@given(CASES)
def test_every_exchange_is_adjoint_to_its_transpose(case):
    plan, rng = case.plan(), np.random.default_rng(case.seed)
    for step in range(plan.num_steps):
        for operand in OPERANDS:
            x = integers(rng, plan, step, operand)
            y = integers(rng, plan, step + 1, operand)
            moved = plan.exchange(step, operand, x)
            back = plan.exchange_transposed(step, operand, y)
            assert [a.shape for a in moved] == [a.shape for a in y]
            assert [a.shape for a in back] == [a.shape for a in x]
            assert inner(moved, y) == inner(x, back), f"step {step}, {operand}"


def names(layout, segments, heads):
    """[rows, heads, 1]: a number that names the global row and the head of each cell."""
    begin, end = heads
    rows = [layout.cu_seqlens_padded[s.seq] + s.positions for s in segments]
    flat = np.concatenate([np.zeros(0, int), *rows])
    return (flat[:, None, None] * 1000.0) + np.arange(begin, end)[None, :, None]


@given(CASES)
def test_after_every_exchange_each_rank_holds_the_rows_and_heads_that_it_claims(case):
    plan = case.plan()
    layouts = {"q": case.layout_q, "kv": case.keys}
    for operand in OPERANDS:
        layout = layouts[operand]
        held = [names(layout, *home(plan, rank, operand)) for rank in range(case.cp_size)]
        for step in range(plan.num_steps):
            held = plan.exchange(step, operand, held)
            for rank, x in enumerate(held):
                claimed = names(layout, *resident(plan, rank, step + 1, operand))
                np.testing.assert_array_equal(x, claimed, err_msg=f"rank {rank}, step {step}")


@given(CASES)
def test_messages_say_what_moves_and_agree_at_both_ends(case):
    plan = case.plan()
    for step in range(plan.num_steps):
        sent, received = [], []
        for rank in range(case.cp_size):
            this = plan.steps(rank)[step]
            sent += [(rank, m.peer, m.operand, m.rows, m.heads) for m in this.sends]
            received += [(m.peer, rank, m.operand, m.rows, m.heads) for m in this.receives]
            assert this.exchange != "none" or not (this.sends or this.receives)
        assert sorted(sent) == sorted(received)


@given(noted(strategies.cases(cp_sizes=strategies.cp_sizes(max_size=6))))
def test_gradients_of_a_row_sent_to_many_ranks_come_home_as_their_sum(case):
    """Ones everywhere come back as the number of copies; every copy must be counted."""
    plan = case.plan()
    for step in range(plan.num_steps):
        for operand in OPERANDS:
            ones = [np.ones(shape(plan, r, step + 1, operand, 1)) for r in range(case.cp_size)]
            back = plan.exchange_transposed(step, operand, ones)
            assert sum(x.sum() for x in back) == sum(x.size for x in ones)
