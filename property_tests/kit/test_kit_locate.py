"""locate() names the step, the rank and the tile of a planted fault, forward and backward."""

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from dropping import Dropping, names_of, tile_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ringside.testing import Case, locate, strategies

CASE = Case(
    rs.PackedLayout([0, 9, 16], [0, 10, 20]), mask=rs.Mask.full(), cp_size=4, num_heads=2,
    partition="contiguous",
)  # fmt: skip
CASES = noted(
    strategies.cases(
        layouts_q=strategies.layouts(lengths=strategies.lengths(max_sequences=2, max_length=16)),
        cp_sizes=strategies.cp_sizes(max_size=4),
        softmax_scales=st.sampled_from([None, 1.0]),
    )
)


def reference(plan, *arrays, **options):
    return plan.attention(*arrays, **options)


@settings(max_examples=60)
@given(CASES, st.data())
def test_a_dropped_tile_is_named(case, data):
    plan = case.plan()
    names = names_of(plan)
    assume(names)
    name = data.draw(st.sampled_from(names), label="lost")
    tile = tile_of(plan, name)
    lost = Dropping(*name[:2], tile)
    found = locate(
        plan, lost.forward, case.arrays(), dtype="float64", softmax_scale=case.softmax_scale
    )
    assert (found.direction, found.step, found.rank, found.tile) == ("forward", *name[:2], tile)
    assert found.tensor == "out" or found.got == -np.inf
    assert found.document == tile.q.seq
    assert found.position in range(tile.q.pos, tile.q.pos + tile.q.len * tile.q.stride)


def test_a_tile_that_backward_drops_in_step_2_is_named():
    plan = CASE.plan()
    tile = plan.steps(3)[2].tiles[0]
    lost = Dropping(2, 3, tile)
    found = locate(plan, reference, CASE.arrays(), backward=lost.backward, dtype="float64")
    assert (found.direction, found.step, found.rank, found.tile) == ("backward", 2, 3, tile)
    assert str(found).startswith(
        "backward, step 2, rank 3, queries 7..9 against keys 2..4 of document 0: dq at row 7 of"
    )


def test_what_is_right_has_no_location():
    def backward(plan, *arrays):
        return [x.astype(np.float32) for x in plan.attention_backward(*arrays)]

    assert locate(CASE.plan(), reference, CASE.arrays(), backward=backward) is None


def test_a_wrong_merge_is_wrong_in_no_step_alone():
    def last_step_wins(plan, q, k, v):
        """Every row keeps what its last step saw."""
        out, lse = np.zeros_like(q), np.full(q.shape[1::-1], -np.inf)
        for step in range(plan.num_steps):
            tiles = {n for n in names_of(plan) if n[0] == step}
            now, now_lse = plan._part(plan.num_steps, tiles).attention(q, k, v)
            seen = np.isfinite(now_lse)
            out[seen.T], lse[seen] = now[seen.T], now_lse[seen]
        return out, lse

    found = locate(CASE.plan(), last_step_wins, CASE.arrays())
    assert (found.step, found.rank, found.tile) == (1, 0, None)
    assert "joins partial results" in str(found)


def test_a_fault_that_needs_two_tiles_names_their_rank():
    def cannot_do_two(plan, q, k, v):
        out, lse = plan.attention(q, k, v)
        if len(plan.steps(1)[0].tiles) > 1:
            out[plan.row_indices(1)] += 1
        return out, lse

    plan = rs.plan(rs.PackedLayout([0, 4, 16]), mask=rs.Mask.full(), cp_size=2)
    assert len(plan.steps(1)[0].tiles) > 1
    q = k = v = np.ones((16, 1, 2))
    found = locate(plan, cannot_do_two, (q, k, v, q))
    assert (found.step, found.rank, found.tile, found.tensor) == (0, 1, None, "out")
    assert "no half is wrong alone" in str(found)


def test_what_is_wrong_once_only_is_said_to_be():
    runs = []

    def once(plan, q, k, v):
        out, lse = plan.attention(q, k, v)
        runs.append(plan)
        return out + (len(runs) == 1), lse

    assert "not the same from run to run" in str(locate(CASE.plan(), once, CASE.arrays()))


def test_a_nan_is_a_difference():
    def poisoned(plan, q, k, v):
        out, lse = plan.attention(q, k, v)
        lse[1, 12] = np.nan
        return out, lse

    found = locate(CASE.plan(), poisoned, CASE.arrays())
    assert (found.tensor, found.document, found.position, found.head) == ("lse", 1, 2, 1)


def test_parts_of_plans_are_refused_where_they_do_not_fit():
    plan = CASE.plan()
    with pytest.raises(ValueError, match="num_steps=5; expected 0 to 4"):
        plan._part(5)
    with pytest.raises(ValueError, match="step 2 of rank 0 is not in this part"):
        plan._part(2, {(2, 0, 0)})
    with pytest.raises(ValueError, match="got tile 99"):
        plan._part(1, {(0, 0, 99)})
    with pytest.raises(rs.PlanError):
        plan._part(1).verify()
    assert plan._part(4) == plan
