"""Strategies for what attention takes besides a mask; ringside.testing.strategies exports them."""

from __future__ import annotations

import functools
from typing import Any

from ringside._extras import extra

with extra("testing", "ringside.testing.strategies"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy


def dtypes() -> SearchStrategy[str]:
    """Names of the types that inputs are rounded to.

    >>> dtypes().example()  # doctest: +SKIP
    'float32'
    """
    return st.sampled_from(["float64", "float32", "float16", "bfloat16"])


def sinks(num_heads: int) -> SearchStrategy[float | tuple[float, ...]]:
    """A sink for all heads, or one a head; large ones too, which hide nothing.

    >>> sinks(2).example()  # doctest: +SKIP
    (0.0, 8.0)
    """
    return _sinks(num_heads)


@functools.cache
def _sinks(num_heads: int) -> SearchStrategy[float | tuple[float, ...]]:
    each = st.lists(LOGITS, min_size=num_heads, max_size=num_heads).map(tuple)
    return st.one_of(LOGITS, each)


# Made once, not for each case; without booleans, one of which Hypothesis likes to set as another.
LOGITS = st.sampled_from([0.0, 1.0, -2.5, 8.0])
HAS_SINK = st.sampled_from([0, 0, 1])
SOFTCAPS = st.sampled_from([0.0] * 6 + [5.0, 1.0, 30.0])
SLOPES = st.sampled_from([None] * 4 + [0.5, 0.0625])
DROPOUTS = st.sampled_from([0.0] * 4 + [0.25, 0.9])
DROPOUT_SEEDS = st.integers(0, 2**64 - 1)


def options(num_heads: int) -> SearchStrategy[dict[str, Any]]:
    """Keywords of ringside.attention: softcap, sink, alibi_slopes, dropout, each mostly absent.

    >>> options(1).example()  # doctest: +SKIP
    {'softcap': 5.0}
    """
    return _options(num_heads)


@functools.cache
def _options(num_heads: int) -> SearchStrategy[dict[str, Any]]:
    return _some_options(_sinks(num_heads))


@st.composite
def _some_options(draw: DrawFn, sinks: SearchStrategy[float | tuple[float, ...]]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if softcap := draw(SOFTCAPS):
        given["softcap"] = softcap
    if slopes := draw(SLOPES):
        given["alibi_slopes"] = slopes
    if dropout_p := draw(DROPOUTS):
        given["dropout_p"] = dropout_p
        given["dropout_seed"] = draw(DROPOUT_SEEDS)
    if draw(HAS_SINK):
        given["sink"] = draw(sinks)
    return given
