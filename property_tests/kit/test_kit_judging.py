"""What the kit calls an error, held against the same said number by number in plain Python."""

import math

import numpy as np
import pytest
import ringside as rs
from assertions import valid_rows
from hypothesis import given
from hypothesis import strategies as st
from ringside import _rows
from ringside.testing import Case, strategies
from ringside.testing._judging import errors, first, relative_errors, worst

NUMBERS = st.one_of(st.floats(width=32), st.sampled_from([0.0, math.inf, -math.inf, math.nan]))
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8).map(np.array)


def error(got, true):
    """Infinities are right where they are the same; nothing is as right as a NaN is wrong."""
    if got == true:
        return 0.0
    return abs(got - true) if math.isfinite(got) and math.isfinite(true) else math.inf


@given(PAIRS)
def test_an_error_is_that_of_each_number(pairs):
    got, true = pairs.T.copy()
    wanted = [error(*pair) for pair in pairs.tolist()]
    assert errors(got, true).tolist() == wanted


@given(PAIRS)
def test_relative_errors_are_of_numbers_above_1(pairs):
    got, true = pairs.T.copy()
    finite = [max(1.0, abs(x)) if math.isfinite(x) else 1.0 for x in true]
    wanted = [error(a, b) / size for (a, b), size in zip(pairs.tolist(), finite, strict=True)]
    assert relative_errors(got, true).tolist() == wanted


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_first_wrong_one_is_that_of_the_first_row(wrong):
    found = [(i, j) for i, row in enumerate(wrong) for j, x in enumerate(row) if x]
    assert first(np.array(wrong)) == (found[0] if found else None)


def test_the_worst_is_looked_for_among_the_wrong_ones():
    off = np.array([3.0, 9.0, 5.0])
    assert worst(off) == 1
    assert worst(off, np.array([True, False, True])) == 2


@given(strategies.layouts())
def test_rows_hold_tokens_where_the_prefix_sums_say_so(layout):
    np.testing.assert_array_equal(_rows.valid_rows(layout), valid_rows(layout))
    places = [_rows.place(layout, row) for row in range(layout.num_rows)]
    assert [place[2] for place in places] == valid_rows(layout).tolist()
    assert [place[1] for place in places] == _rows.positions(layout).tolist()
    starts = layout.cu_seqlens_padded
    assert all(starts[s] + position == row for row, (s, position, _) in enumerate(places))


@pytest.mark.parametrize("stray", [math.nan, math.inf, -math.inf])
def test_a_stray_number_makes_the_largest_error_infinite(monkeypatch, stray):
    case = Case(rs.PackedLayout([0, 3]))
    truth = case.by_definition()
    truth.out[1, 0, 0] = stray
    monkeypatch.setattr(Case, "by_plan", lambda self: truth)
    assert case.largest_error() == math.inf
