"""Exercise 2: the interval of keys that a query sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside._core import Mask
from ringside.learn._exercise import Answer, Exercise, Wrong, array_of, told
from ringside.learn.figures.masks import figure_of_interval
from ringside.testing import strategies

STUB = '''
def visible(q, len_q, len_k, window_size, chunk_size, align):
    """(begin, end): query q of len_q sees the keys from begin to end - 1, of len_k."""
'''


class MaskedQuery(NamedTuple):
    """A query of a document under a mask."""

    mask: Mask
    q: int
    len_q: int
    len_k: int


@st.composite
def cases(draw: Any) -> MaskedQuery:
    """Windows, chunks and both, of documents with as many keys as queries, fewer or more."""
    len_q = draw(st.integers(1, 12))
    mask = draw(
        strategies.masks(
            bounds=st.sampled_from([-1, 0, 1, 2, 5]), chunk_sizes=st.sampled_from([0, 1, 2, 3, 5])
        )
    )
    len_k = draw(st.one_of(st.just(len_q), st.integers(0, 12)))
    return MaskedQuery(mask, draw(st.integers(0, len_q - 1)), len_q, len_k)


def ask(visible: Answer, case: MaskedQuery) -> tuple[int, int]:
    """The two ends that it returns."""
    mask = case.mask
    said = visible(case.q, case.len_q, case.len_k, mask.window_size, mask.chunk_size, mask.align)
    expected = "two integers, (begin, end)"
    ends = array_of(said, "iu", expected)
    if ends.shape != (2,):
        raise Wrong(f"got {told(said)}; expected {expected}")
    return int(ends[0]), int(ends[1])


def fault(case: MaskedQuery, got: tuple[int, int]) -> str:
    """Keys that Mask.allows sees otherwise; all empty intervals are one."""
    lengths = (case.len_q, case.len_k)
    allowed = [k for k in range(case.len_k) if case.mask.allows(case.q, k, *lengths)]
    begin, end = got
    if list(range(begin, end)) == allowed:
        return ""
    wanted = f"[{allowed[0]}, {allowed[-1] + 1})" if allowed else "no key, such as (0, 0)"
    return f"got [{begin}, {end}) of {case.len_k} keys; expected {wanted}"


def told_of(case: MaskedQuery) -> str:
    """The call."""
    mask = case.mask
    return (
        f"q={case.q}, len_q={case.len_q}, len_k={case.len_k}, window_size={mask.window_size}, "
        f'chunk_size={mask.chunk_size}, align="{mask.align}"'
    )


def drawn(case: MaskedQuery, got: tuple[int, int] | None) -> Figure:
    """The mask, its query, and the interval of the answer, as far as there is room for it."""
    if got is not None:
        begin, end = np.clip(got, -4, case.len_k + 4)
        got = int(begin), int(end)
    return figure_of_interval(case.mask, case.q, (case.len_q, case.len_k), got)


EXERCISE = Exercise(
    stub=STUB,
    plain=MaskedQuery(Mask.causal(), 2, 4, 4),
    cases=cases,
    ask=ask,
    fault=fault,
    told=told_of,
    drawn=drawn,
    holds="the interval is that of Mask.allows",
    examples=400,
)
