"""Cases and Demands that cannot be are refused where they are made; a case is its repr."""

import re

import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import Case, Demands, strategies

CASE = Case(rs.PackedLayout([0, 3, 5], [0, 4, 7]), num_heads=2, cp_size=2)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"softmax_scale": float("nan")}, "softmax_scale=nan; expected a finite number"),
        ({"dropout_p": 1.5}, "dropout_p=1.5; expected a probability"),
        ({"mask": None}, "mask is None; expected a ringside.Mask"),
        ({"softcap": -1}, "softcap=-1; expected 0"),
        ({"sink": (1.0, 2.0, 3.0)}, "sink has shape (3,); expected one number"),
        ({"alibi_slopes": (1.0,) * 3}, "alibi_slopes has shape (3,); expected one number"),
        ({"dropout_seed": -1}, "dropout_seed=-1; expected 0"),
        ({"layout_k": rs.PackedLayout([0, 1])}, "layout_q holds 2 sequences and layout_k 1"),
        ({"cp_size": 0}, "cp_size=0; expected at least 1 rank"),
        ({"partition": "nope"}, 'partition="nope" is unknown'),
        ({"comm": "nope"}, 'comm="nope" is unknown'),
        ({"seed": -1}, "seed=-1; expected an integer, 0 or more"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_case_that_no_function_could_answer_is_refused(setting, expected):
    """Where it is made: else the function that is checked would be blamed."""
    with pytest.raises((ValueError, TypeError), match=re.escape(expected)):
        CASE.replace(**setting)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"merges": -2}, "merges=-2; expected an integer, 0 or more"),
        ({"merges": 1.5}, "merges=1.5; expected an integer, 0 or more"),
        ({"runs": 0}, "runs=0; expected an integer, 1 or more"),
        ({"runs": True}, "runs=True; expected an integer, 1 or more"),
        ({"padding": "none"}, 'padding=\'none\'; expected "zero" or "any"'),
        ({"partial": "half"}, "partial='half'; expected one of float64"),
        ({"accumulate": "fp32"}, "accumulate='fp32'; expected one of float64"),
    ],
)
def test_demands_that_would_ask_nothing_are_refused(asked, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        Demands(**asked)


@settings(max_examples=50)
@given(strategies.cases(options=strategies.options, dtypes=strategies.dtypes()))
def test_a_case_is_its_repr(case):
    names = {name: getattr(rs, name) for name in ("Mask", "PackedLayout", "Segment")}
    assert eval(repr(case), {"Case": Case, **names}) == case


@given(strategies.plans(cp_sizes=st.just(2)))
@settings(max_examples=20)
def test_drawn_plans_are_plans(plan):
    assert plan.cp_size == 2
    plan.verify()
