"""plan.who and plan.story agree with the definition; plan.first_steps runs and is refused whole."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st
from ringside.testing import strategies

LAYOUT = rs.PackedLayout([0, 5, 8, 8], [0, 6, 12, 12])


def tokens_of(layout):
    """[rows] (document, position), None for padding; by counting, not by search."""
    tokens = [None] * layout.num_rows
    for seq in range(layout.num_sequences):
        first = int(layout.cu_seqlens_padded[seq])
        for position in range(int(layout.cu_seqlens[seq + 1] - layout.cu_seqlens[seq])):
            tokens[first + position] = (seq, position)
    return tokens


def lengths_of(layout):
    return np.diff(np.asarray(layout.cu_seqlens)).tolist()


def allowed(case, row, key):
    """Whether the mask lets a row of the pack see a key, as it defines it."""
    q, k = tokens_of(case.layout_q)[row], tokens_of(case.keys)[key]
    if q is None or k is None or q[0] != k[0]:
        return False
    lengths = lengths_of(case.layout_q)[q[0]], lengths_of(case.keys)[k[0]]
    return bool(case.mask.allows(q[1], k[1], *lengths))


@given(strategies.cases(), st.data())
def test_every_visible_pair_is_computed_once_a_head_and_no_other_is(case, data):
    plan = case.plan()
    if not plan.layout_q.num_rows or not plan.layout_k.num_rows:
        return
    for _ in range(5):
        row = data.draw(st.integers(0, plan.layout_q.num_rows - 1))
        key = data.draw(st.integers(0, plan.layout_k.num_rows - 1))
        found = plan.who(row, key)
        assert bool(found.why_not) != allowed(case, row, key), found
        heads = sorted(h for place in found.places for h in range(*place.heads))
        assert heads == ([] if found.why_not else list(range(plan.num_heads)))
        for place in found.places:
            step = plan.steps(place.rank)[place.step]
            tile = step.tiles[place.tile]
            at = place.q_row - tile.q.row, place.k_row - tile.k.row
            positions = [s.pos + i * s.stride for s, i in zip((tile.q, tile.k), at, strict=True)]
            token = tokens_of(plan.layout_q)[row], tokens_of(plan.layout_k)[key]
            assert list(zip((tile.q.seq, tile.k.seq), positions, strict=True)) == list(token)
        assert str(row) in str(found) and str(key) in str(found)


@given(strategies.cases(), st.data())
def test_a_story_adds_up_to_the_answer_of_the_definition(case, data):
    plan = case.plan()
    if not plan.layout_q.num_rows:
        return
    row = data.draw(st.integers(0, plan.layout_q.num_rows - 1))
    head = data.draw(st.integers(0, plan.num_heads - 1))
    q, k, v, _ = case.arrays()
    _, lse = rs.attention(q, k, v, plan.layout_q, layout_k=plan.layout_k, mask=plan.mask)
    parts = plan.story(row, q, k, head=head)
    visible = [key for key in range(plan.layout_k.num_rows) if allowed(case, row, key)]
    assert sum(part.keys for part in parts) == len(visible)
    owners = {rank for part in parts for rank in part.owners}
    at_home = {r: set(plan.row_indices(r, side="k").tolist()) for r in range(plan.cp_size)}
    assert owners == {r for r, rows in at_home.items() if rows & set(visible)}
    if visible:
        total = np.logaddexp.reduce([part.lse for part in parts])
        assert total == pytest.approx(lse[head, row], rel=1e-12, abs=1e-12)
        assert sum(part.share for part in parts) == pytest.approx(1)
    for part in parts:
        assert part.step < plan.num_steps and part.keys > 0


def test_first_steps_run_and_are_refused_as_a_whole():
    plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=4)
    q = np.random.default_rng(0).normal(size=(8, 1, 2))
    whole, lse = plan.attention(q, q, q)
    part, lse_of_part = plan.first_steps(1).attention(q, q, q)
    assert part.shape == whole.shape and (lse_of_part <= lse).all() and (lse_of_part < lse).any()
    with pytest.raises(rs.PlanError):
        plan.first_steps(1).verify()
    assert plan.first_steps(plan.num_steps).verify().pairs == plan.verify().pairs


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda p: p.who(12, 0), "row 12; expected 0 to 11"),
        (lambda p: p.who(0, -1), "key -1; expected 0 to 11"),
        (lambda p: p.story(0, head=1), "head 1; expected 0 to 0"),
        (lambda p: p.story(0, np.zeros((12, 1, 2))), "one of q and k"),
        (lambda p: p.story(0, np.zeros((12, 1, 2)), np.zeros((11, 1, 2))), r"k has shape \(11"),
        (lambda p: p.story(0, np.zeros((12, 1, 2)), np.zeros((12, 1, 3))), "dimensions 2 and 3"),
        (lambda p: p.first_steps(3), "steps 3; expected 0 to 2"),
    ],
)
def test_bad_input_says_what_was_expected(call, text):
    with pytest.raises(rs.InvalidArgument, match=text):
        call(rs.plan(LAYOUT, cp_size=2))


def test_reasons_are_named():
    plan = rs.plan(LAYOUT, cp_size=2)
    assert "the row is padding" in str(plan.who(5, 0))
    assert "the key is padding" in str(plan.who(0, 5))
    assert "documents 0 and 1" in str(plan.who(0, 6))
    assert "position 0 of document 0 sees keys 0 to 0, not 1" in str(plan.who(0, 1))
    assert plan.story(5) == []


def test_a_pack_without_rows_has_none_to_ask_of():
    plan = rs.plan(rs.PackedLayout([0]), cp_size=2)
    for ask in (lambda: plan.who(0, 0), lambda: plan.story(0), lambda: plan.draw_story(0)):
        with pytest.raises(rs.InvalidArgument, match=r"^row 0; the pack has no rows\. Ask"):
            ask()
