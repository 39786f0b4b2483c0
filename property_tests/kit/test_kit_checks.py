"""The checks take what agrees and refuse what does not."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_by_rank import Ranks
from ringside.testing import (
    Case,
    Disagreement,
    check_attention,
    check_context_parallel,
    strategies,
)

CASE = Case(rs.PackedLayout([0, 3, 5], [0, 4, 7]), num_heads=2, cp_size=2)
EVERYTHING = strategies.cases(options=strategies.options, dtypes=st.just("float64"))


class Emptying(Ranks):
    """Takes the ranks' arrays out of the lists, one by one."""

    def __call__(self, *lists, **keywords):
        return super().__call__(*self.emptied(lists), **keywords)

    def backward(self, *lists, **keywords):
        return super().backward(*self.emptied(lists), **keywords)

    def emptied(self, lists):
        return [[x.pop(0) for _ in range(len(x))] for x in lists]


def test_the_lists_of_ranks_are_the_functions_own():
    fn = Emptying()
    assert check_context_parallel(fn, CASE, backward=fn.backward).largest_ratio < 1


def test_a_tolerance_that_is_no_number_lets_nothing_pass(monkeypatch):
    def nothing(case, arrays, truth, precision):
        return type(truth)(*(np.full_like(x, np.nan) for x in truth))

    monkeypatch.setattr("ringside.testing.check.bounds", nothing)
    with pytest.raises(Disagreement, match="tolerance nan"):
        check_attention(lambda *qkv, **keywords: 5 * rs.attention(*qkv, **keywords)[0], CASE)


@settings(max_examples=60)
@given(EVERYTHING)
def test_the_definition_agrees_with_itself(case):
    report = check_attention(rs.attention, case, backward=rs.attention_backward)
    assert report.largest_ratio < 1e-6


@settings(max_examples=60)
@given(EVERYTHING)
def test_plans_agree_rank_by_rank_with_all_options(case):
    report = check_context_parallel(Ranks(), case)
    assert {"out", "lse", "dq", "dk", "dv"} <= report.ratios.keys()
    assert report.largest_ratio < 0.5


def test_a_dsink_that_alone_is_wrong_is_caught():
    case = CASE.replace(sink=1.0)

    def twice(*operands, **keywords):
        *others, dsink = rs.attention_backward(*operands, **keywords)
        return (*others, 2 * dsink)

    class Whole(Ranks):
        def backward(self, *operands, **keywords):
            gradients = super().backward(*operands, **keywords)
            return [(*others, dsink * case.cp_size) for *others, dsink in gradients]

    with pytest.raises(Disagreement) as failure:
        check_attention(rs.attention, case, backward=twice)
    assert failure.value.finding.tensor == "dsink"
    with pytest.raises(Disagreement) as failure:
        check_context_parallel(Whole(), case)
    assert failure.value.finding.tensor == "dsink"
