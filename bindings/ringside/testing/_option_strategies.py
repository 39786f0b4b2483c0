"""Strategies for what attention takes besides a mask; ringside.testing.strategies exports them."""

from __future__ import annotations

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
    logits = st.sampled_from([0.0, 1.0, -2.5, 8.0])
    each = st.lists(logits, min_size=num_heads, max_size=num_heads).map(tuple)
    return st.one_of(logits, each)


@st.composite
def options(draw: DrawFn, num_heads: int) -> dict[str, Any]:
    """Keywords of ringside.attention: softcap, sink, alibi_slopes, dropout, each mostly absent.

    >>> options(1).example()  # doctest: +SKIP
    {'softcap': 5.0}
    """
    given: dict[str, Any] = {}
    if draw(st.booleans()):
        given["softcap"] = draw(st.sampled_from([5.0, 1.0, 30.0]))
    if draw(st.booleans()):
        given["sink"] = draw(sinks(num_heads))
    if draw(st.booleans()):
        given["alibi_slopes"] = draw(st.sampled_from([0.5, 0.0625]))
    if draw(st.booleans()):
        given["dropout_p"] = draw(st.sampled_from([0.25, 0.9]))
        given["dropout_seed"] = draw(st.integers(0, 2**64 - 1))
    return given
