"""NaN and infinities reach what sees them, and nothing else; definition, plan and NumPy agree."""

import numpy as np
import pytest
import ringside as rs
from assertions import assert_close, assert_same_bits, noted, scale_of, valid_rows
from hypothesis import assume, example, given, note
from hypothesis import strategies as st
from independent import dense_mask
from pairwise import pairwise
from ringside.testing import Arrays, Case, Results, strategies

RUNS = {"definition": Case.by_definition, "plan": Case.by_plan}
BOTH = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
NOT_FINITE = st.sampled_from([np.nan, np.inf, -np.inf])


@st.composite
def options(draw, num_heads):
    """Any combination; what may differ from head to head does."""

    def per_head(numbers):
        each = st.lists(numbers, min_size=num_heads, max_size=num_heads, unique=True).map(tuple)
        return st.one_of(st.none(), numbers, each)

    given_options = {
        "softcap": draw(st.sampled_from([0.0, 1.5, 20.0])),
        "sink": draw(per_head(st.integers(-3, 12).map(float))),
        "alibi_slopes": draw(per_head(st.integers(-4, 12).map(lambda n: n / 8))),
        "dropout_p": draw(st.sampled_from([0.0, 0.0, 0.25, 0.9])),
        "dropout_seed": draw(st.integers(0, 2**64 - 1)),
    }
    return {name: x for name, x in given_options.items() if x is not None}


CASES = noted(strategies.cases(options=options))


@st.composite
def poisoned(draw, cases=CASES):
    """A case and its arrays with some numbers, or whole rows, that are not finite."""
    case = draw(cases)
    arrays = Arrays(*(x.copy() for x in case.arrays()))
    layouts = (case.layout_q, case.keys, case.keys, case.layout_q)
    for _ in range(draw(st.integers(1, 5))):
        name, layout = draw(st.sampled_from([*zip(Arrays._fields, layouts, strict=True)]))
        rows, x = np.flatnonzero(valid_rows(layout)), getattr(arrays, name)
        if not len(rows):
            continue
        place = (draw(st.sampled_from(rows.tolist())), draw(st.integers(0, x.shape[1] - 1)))
        if draw(st.booleans()):
            place += (draw(st.integers(0, x.shape[2] - 1)),)
        value = draw(NOT_FINITE)
        note(f"{name}{list(place)} = {value}")
        x[place] = value
    return case, arrays


def classes(x):
    """1 for +inf, -1 for -inf, 2 for NaN, 0 for what is finite."""
    return np.select([np.isnan(x), np.isposinf(x), np.isneginf(x)], [2, 1, -1], 0)


def assert_agree(case, arrays, got, wanted):
    """The same NaNs, the same infinities, and the rest close."""
    ds = case.scale * case.head_dim_v * scale_of(arrays.dout) * scale_of(arrays.v)
    operands = [16 * ds * scale_of(arrays.q, arrays.k), 3.0 * 64]  # as in test_options
    for name, a, b in zip(Results._fields, got, wanted, strict=True):
        np.testing.assert_array_equal(classes(a), classes(b), err_msg=name)
        finite = np.isfinite(b)
        assert_close(name, a[finite], b[finite], operands=operands)


@given(poisoned())
def test_the_definition_is_the_sum_over_the_pairs_that_are_seen(poisoned_case):
    case, arrays = poisoned_case
    assert_agree(case, arrays, case.by_definition(arrays), pairwise(case, arrays))


@given(poisoned())
def test_any_plan_has_the_nans_and_infinities_of_the_definition(poisoned_case):
    case, arrays = poisoned_case
    case = case.replace(softmax_scale=case.scale)
    assert_agree(case, arrays, case.by_plan(arrays), case.by_definition(arrays))
