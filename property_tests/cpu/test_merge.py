"""Results over parts of the keys merge by log-sum-exp into the result over all keys.

lse is not a by-product: with it, partial results form a commutative monoid whose identity is
(out 0, lse -inf), "saw nothing". The merge below is NumPy's, the parts are the library's.
"""

import numpy as np
import ringside as rs
from assertions import assert_close, scale_of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ringside.testing import Case, strategies


def merge(*parts):
    """[(out, lse)] -> (out, lse); lse [heads, rows], out [rows, heads, dim]."""
    lses = np.stack([lse for _, lse in parts])
    total = np.logaddexp.reduce(lses, axis=0)
    with np.errstate(invalid="ignore"):
        weights = np.where(lses == -np.inf, 0.0, np.exp(lses - total))
    outs = np.stack([out for out, _ in parts])
    return np.einsum("phr,prhd->rhd", weights, outs), total


@st.composite
def split_keys(draw):
    """A case without padding whose mask is full, and where each document's keys are cut."""
    layout_q = draw(strategies.layouts(padding=st.just(0)))
    case = draw(
        strategies.cases(
            layouts_q=st.just(layout_q), masks=st.just(rs.Mask.full()), partitions=st.just("zigzag")
        )
    )
    cuts = [draw(st.integers(0, int(n))) for n in case.keys.lengths]
    return case, cuts


def keys_between(layout, x, begins, ends):
    """The layout and the rows of tokens [begin, end) of each document."""
    parts = [rows[b:e] for rows, b, e in zip(layout.unpack(x), begins, ends, strict=True)]
    lengths = [len(rows) for rows in parts]
    rows = np.concatenate([*parts, np.zeros((0, *x.shape[1:]))])
    return rs.PackedLayout.from_lengths(lengths), rows


@given(split_keys())
def test_attention_over_two_parts_of_the_keys_merges_to_attention_over_all(drawn):
    case, cuts = drawn
    q, k, v, _ = case.arrays()
    settings = {"mask": case.mask, "softmax_scale": case.softmax_scale}
    whole = rs.attention(q, k, v, case.layout_q, case.keys, **settings)
    parts = []
    for begins, ends in (([0] * len(cuts), cuts), (cuts, case.keys.lengths.tolist())):
        layout, some_k = keys_between(case.keys, k, begins, ends)
        _, some_v = keys_between(case.keys, v, begins, ends)
        parts.append(rs.attention(q, some_k, some_v, case.layout_q, layout, **settings))
    score = case.scale * case.head_dim * scale_of(q) * scale_of(k)
    for order in (parts, parts[::-1]):
        out, lse = merge(*order)
        assert_close("out", out, whole[0], operands=[v], layout=case.layout_q)
        assert_close("lse", lse, whole[1], operands=[score], layout=case.layout_q, rows_axis=1)


@given(strategies.layouts(padding=st.just(0)), st.integers(0, 2**32 - 1))
def test_the_merge_of_nothing_with_nothing_is_nothing(layout, seed):
    q = np.random.default_rng(seed).normal(size=(layout.num_rows, 2, 3))
    empty = rs.PackedLayout.from_lengths([0] * layout.num_sequences)
    nothing = rs.attention(q, q[:0], q[:0], layout, empty, mask=rs.Mask.full())
    assert (nothing[0] == 0).all()
    assert (nothing[1] == -np.inf).all()
    out, lse = merge(nothing, nothing)
    assert (out == 0).all()
    assert (lse == -np.inf).all()
    whole = rs.attention(q, q, q, layout, mask=rs.Mask.full())
    for merged, wanted in zip(merge(nothing, whole), whole, strict=True):
        assert_close("merged with nothing", merged, wanted)


@given(
    st.lists(st.sampled_from([0.0, 700.0, -700.0, 1500.0, -1500.0]), min_size=2, max_size=6),
    st.integers(2, 6),
    hnp.arrays(np.float64, 6, elements=st.floats(-1, 1)),
)
def test_ranks_whose_scores_are_thousands_apart_merge_without_overflow(scores, cp_size, noise):
    """One key a rank, so that every key is a partial result of its own."""
    n = len(scores)
    q = np.zeros((n, 1, 1)) + 1.0
    k = (np.array(scores) + noise[:n]).reshape(n, 1, 1)
    v = np.arange(1.0, n + 1).reshape(n, 1, 1)
    layout = rs.PackedLayout([0, n])
    plan = rs.plan(layout, mask=rs.Mask.full(), cp_size=cp_size, partition="striped")
    out, lse = plan.attention(q, k, v, softmax_scale=1.0)
    top = k.max()
    weights = np.exp(k - top)
    wanted_lse = top + np.log(weights.sum())
    assert_close("lse", lse, np.full((1, n), wanted_lse), operands=[k])
    # exp turns the rounding of a score (1e-13 of 1500) into a relative error of the weights.
    wanted = (weights * v).sum() / weights.sum()
    assert_close("out", out, np.full((n, 1, 1), wanted), operands=[k])


def test_a_rank_without_any_visible_key_changes_nothing():
    """Keys of the second rank lie in the future of all queries of the first."""
    case = Case(rs.PackedLayout([0, 8]), cp_size=2, partition="contiguous", comm="all_gather")
    got, wanted = case.by_plan(), case.by_definition()
    assert_close("out", got.out, wanted.out)
    assert not np.isnan(got.lse).any()
