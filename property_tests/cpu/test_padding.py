"""Padding is never read and never written: no value in it can be noticed."""

import numpy as np
import ringside as rs
from assertions import assert_close, assert_results_close, assert_same_bits, noted, valid_rows
from each_way import both_ways
from hypothesis import given
from hypothesis import strategies as st
from ringside.testing import Arrays, Case, Results, strategies

PADDED = strategies.layouts(padding=st.integers(0, 5))
CASES = noted(strategies.cases(layouts_q=PADDED))
FILLS = [0.0, np.inf, -np.inf, 1e300, -0.0]


def layouts_of(case):
    """The layout of q, k, v, dout."""
    return case.layout_q, case.keys, case.keys, case.layout_q


def refilled(case, arrays, fill):
    copies = Arrays(*(x.copy() for x in arrays))
    for x, layout in zip(copies, layouts_of(case), strict=True):
        x[~valid_rows(layout)] = fill
    return copies


@given(case=CASES)
@both_ways
def test_nan_in_all_padding_never_spreads_and_results_are_zero_there(run, case):
    arrays = case.arrays()
    assert all(
        np.isnan(x[~valid_rows(y)]).all() for x, y in zip(arrays, layouts_of(case), strict=True)
    )
    got = run(case, arrays)
    padding_q, padding_k = ~valid_rows(case.layout_q), ~valid_rows(case.keys)
    assert not any(np.isnan(x).any() for x in got)
    assert (got.out[padding_q] == 0).all(), "out in padding"
    assert (got.lse[:, padding_q] == -np.inf).all(), "lse in padding"
    assert (got.dq[padding_q] == 0).all(), "dq in padding"
    assert (got.dk[padding_k] == 0).all(), "dk in padding"
    assert (got.dv[padding_k] == 0).all(), "dv in padding"


@given(case=CASES, fill=st.sampled_from(FILLS))
@both_ways
def test_results_are_bit_identical_whatever_is_in_padding(run, case, fill):
    arrays = case.arrays()
    for name, a, b in zip(
        Results._fields, run(case, arrays), run(case, refilled(case, arrays, fill)), strict=True
    ):
        assert_same_bits(name, a, b)


@given(case=CASES)
def test_backward_does_not_read_the_padding_of_what_forward_saved(case):
    q, k, v, dout = case.arrays()
    settings = {"softmax_scale": case.softmax_scale}
    plan = case.plan()
    out, lse = plan.attention(q, k, v, **settings)
    wanted = plan.attention_backward(dout, q, k, v, out, lse, **settings)
    padding = ~valid_rows(case.layout_q)
    out[padding], lse[:, padding] = np.nan, np.nan
    got = plan.attention_backward(dout, q, k, v, out, lse, **settings)
    layouts = (case.layout_q, case.layout_k)
    definition = rs.attention_backward(
        dout, q, k, v, out, lse, *layouts, mask=case.mask, **settings
    )
    for a, b, c in zip(got, wanted, definition, strict=True):
        assert_same_bits("a gradient", a, b)
        assert np.isfinite(c).all()


def spread_out(layout, paddings):
    """The layout with so many rows of padding behind each sequence instead of its own."""
    lengths = layout.lengths + np.resize(paddings, layout.num_sequences)
    return rs.PackedLayout(layout.cu_seqlens, [0, *np.cumsum(lengths).tolist()])


@given(case=CASES, paddings=st.lists(st.integers(0, 3), min_size=1))
def test_tokens_do_not_notice_how_much_padding_lies_between_them(case, paddings):
    arrays = case.arrays()
    moved = case.replace(
        layout_q=spread_out(case.layout_q, paddings),
        layout_k=spread_out(case.keys, paddings[::-1]),
        partition="striped",
        partition_k=None,
    )
    spread = []
    for x, old, new in zip(arrays, layouts_of(case), layouts_of(moved), strict=True):
        spread.append(np.full((new.num_rows, *x.shape[1:]), np.nan))
        spread[-1][valid_rows(new)] = x[valid_rows(old)]
    got, wanted = moved.by_plan(Arrays(*spread)), case.by_definition(arrays)
    gathered = Results(
        got.out[valid_rows(moved.layout_q)],
        got.lse[:, valid_rows(moved.layout_q)],
        got.dq[valid_rows(moved.layout_q)],
        got.dk[valid_rows(moved.keys)],
        got.dv[valid_rows(moved.keys)],
    )
    tokens_q, tokens_k = valid_rows(case.layout_q), valid_rows(case.keys)
    tokens = Results(
        wanted.out[tokens_q],
        wanted.lse[:, tokens_q],
        wanted.dq[tokens_q],
        wanted.dk[tokens_k],
        wanted.dv[tokens_k],
    )
    assert_results_close(case, gathered, tokens, arrays)


def test_a_tail_of_padding_is_told_from_tokens():
    """TransformerEngine #3331: 698 tokens in 704 rows, 4 ranks; real rows came back as zeros."""
    case = Case(rs.PackedLayout([0, 698], [0, 704]), cp_size=4, seed=1)
    got, wanted = case.by_plan(), case.by_definition()
    assert (got.out[698:] == 0).all()
    assert np.isfinite(got.lse[:, :698]).all()
    assert (np.abs(got.out[:698]).max(axis=(1, 2)) > 0).all()
    assert_close("out", got.out, wanted.out)


def test_padding_between_documents_of_awkward_lengths():
    """The layout of TransformerEngine #2186."""
    layout = rs.PackedLayout([0, 9, 17, 25, 37, 45, 57], [0, 12, 20, 28, 40, 48, 60])
    for partition in rs.PARTITIONS:
        case = Case(layout, cp_size=2, partition=partition, num_heads=2, seed=2)
        for name, a, b in zip(Results._fields, case.by_plan(), case.by_definition(), strict=True):
            assert_close(f"{name} ({partition})", a, b, operands=[64])
