"""A query that sees no key, and a key that no query sees: exact zeros, never NaN."""

import numpy as np
import pytest
import ringside as rs
from assertions import assert_same_bits, noted
from each_way import both_ways, each_of
from hypothesis import assume, given
from hypothesis import strategies as st
from independent import seeing_rows, seen_rows
from ringside.testing import Case, Results, strategies

NARROW = noted(
    strategies.cases(
        masks=strategies.masks(bounds=st.integers(-1, 2), chunk_sizes=st.integers(0, 3)),
        layouts_q=strategies.layouts(lengths=strategies.lengths(min_sequences=1)),
    )
)


@given(case=NARROW)
@both_ways
def test_they_have_exactly_zero_results_and_gradients(run, case):
    seeing = seeing_rows(case.mask, case.layout_q, case.keys)
    seen = seen_rows(case.mask, case.layout_q, case.keys)
    got = run(case)
    assert not any(np.isnan(x).any() for x in got)
    assert (got.out[~seeing] == 0).all()
    assert (got.lse[:, ~seeing] == -np.inf).all()
    assert (got.dq[~seeing] == 0).all()
    assert (got.dk[~seen] == 0).all()
    assert (got.dv[~seen] == 0).all()


@given(case=NARROW)
@both_ways
def test_rows_that_see_something_have_a_finite_lse(run, case):
    seeing = seeing_rows(case.mask, case.layout_q, case.keys)
    assert np.isfinite(run(case).lse[:, seeing]).all()


@given(case=NARROW)
@each_of("value", [1e6, np.nan, np.inf, -np.inf])
@both_ways
def test_their_dout_reaches_nobody(run, value, case):
    seeing = seeing_rows(case.mask, case.layout_q, case.keys)
    assume(not seeing.all())
    arrays = case.arrays()
    loud = arrays.dout.copy()
    loud[~seeing] = value
    quiet, heard = run(case, arrays), run(case, arrays._replace(dout=loud))
    for name, a, b in zip(Results._fields, quiet, heard, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


EMPTY = {
    "no keys at all": Case(rs.PackedLayout([0, 3]), rs.PackedLayout([0, 0])),
    "no queries at all": Case(rs.PackedLayout([0, 0]), rs.PackedLayout([0, 3])),
    "no sequences": Case(rs.PackedLayout([0]), rs.PackedLayout([0])),
    "padding only": Case(rs.PackedLayout([0, 0], [0, 4])),
    "more queries than keys, bottom right": Case(
        rs.PackedLayout([0, 5]), rs.PackedLayout([0, 2]), mask=rs.Mask.causal(align="bottom_right")
    ),
    "a window behind the last key": Case(
        rs.PackedLayout([0, 6]), rs.PackedLayout([0, 2]), mask=rs.Mask.sliding_window(1, 0)
    ),
    "chunks before the first key": Case(
        rs.PackedLayout([0, 7]),
        rs.PackedLayout([0, 2]),
        mask=rs.Mask.chunked(2, align="bottom_right"),
    ),
}


@pytest.mark.parametrize("case", EMPTY.values(), ids=EMPTY.keys())
@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("cp_size", [1, 2, 4])
def test_small_empty_things_work_with_every_transport(case, comm, cp_size):
    a2a_size = 2 if comm == "a2a+p2p" and cp_size > 1 else (1 if comm == "a2a+p2p" else None)
    case = case.replace(cp_size=cp_size, comm=comm, a2a_size=a2a_size, num_heads=2)
    case.plan().verify()
    for name, a, b in zip(Results._fields, case.by_plan(), case.by_definition(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14, err_msg=name)


def test_what_saw_nothing_is_plus_zero():
    """-0.0 would compare equal but would surprise whoever prints or hashes it."""
    case = EMPTY["more queries than keys, bottom right"]
    got = case.by_plan()
    assert_same_bits("out", got.out[:3], np.zeros_like(got.out[:3]))
