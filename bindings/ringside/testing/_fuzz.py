"""A test of an attention, of one decorator; ringside.testing exports it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import ringside as rs
from ringside._extras import extra
from ringside.testing.cases import Case
from ringside.testing.check import Demands, check_attention, check_context_parallel

LACKS = (
    *("padding", "windows", "chunks", "bottom_right", "grouped_heads", "other_keys", "empty"),
    "scales",
)
Cases = Any  # a Hypothesis strategy of Case, which is imported when a test is made


def fuzz(
    *,
    examples: int = 100,
    context_parallel: bool = False,
    dtype: str = "float32",
    backward: Callable[..., Any] | None = None,
    demands: Demands | None = None,
    cases: Cases = None,
    lacks: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Makes a test of an implementation, which pytest or a plain call runs: random cases, shrunk.

    Args:
        examples: how many cases.
        context_parallel: the function is one of check_context_parallel; else of check_attention.
        dtype: of the arrays.
        backward: its gradients; default its attribute `backward`, if any.
        demands: what else is asked; None as for check_attention.
        cases: a Hypothesis strategy, in place of what dtype and lacks would draw.
        lacks: what it does not support, each with the reason, which the report repeats: "padding",
            "windows", "chunks", "bottom_right", "grouped_heads", "other_keys" (keys of other
            lengths than queries), "empty" (documents without a token) and "scales" (a softmax_scale
            of 0 or below, of which torch's scaled_dot_product_attention makes NaN with is_causal).

    Returns:
        A decorator. The test raises Disagreement where a case disagrees, and AssertionError where
        the function refused every case.

    Raises:
        ValueError: for a name in lacks that is none of these, or a reason that is empty.
        TypeError: for lacks that are no dict.

    >>> import ringside as rs
    >>> from ringside.testing import fuzz
    >>> @fuzz(examples=5, lacks={"other_keys": "self-attention only"})
    ... def test_mine(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
    ...     return rs.attention(q, k, v, layout_q, mask=mask, softmax_scale=softmax_scale)
    >>> test_mine()
    """
    if lacks is not None and not isinstance(lacks, Mapping):
        raise TypeError(
            f"lacks is a {type(lacks).__name__}; expected a dict of names, each with a reason. "
            'Pass lacks={"windows": "why"}'
        )
    for name, reason in (lacks or {}).items():
        if name not in LACKS or not reason:
            expected = ", ".join(LACKS)
            raise ValueError(
                f'lacks={{"{name}": "{reason}"}}; expected one of {expected}, with a reason. '
                "Say why it is not supported"
            )
    check = check_context_parallel if context_parallel else check_attention

    def decorate(fn: Callable[..., Any]) -> Callable[[], None]:
        drawn = cases if cases is not None else _cases(dtype, set(lacks or ()), context_parallel)

        def test() -> None:
            _run(fn, functools.partial(check, demands=demands, backward=backward), drawn, examples)

        test.__name__ = test.__qualname__ = getattr(fn, "__name__", "test")
        test.__module__, test.__doc__ = getattr(fn, "__module__", __name__), fn.__doc__
        return test

    return decorate


def _run(fn: Callable[..., Any], check: Callable[..., Any], drawn: Cases, examples: int) -> None:
    with extra("testing", "ringside.testing.fuzz"):
        import hypothesis

    refusals: list[str] = []
    computed: list[Case] = []

    def one(case: Case) -> None:
        try:
            check(fn, case)
            computed.append(case)
        except (rs.Unsupported, NotImplementedError) as error:
            refusals.append(str(error))

    settings = hypothesis.settings(
        max_examples=examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    settings(hypothesis.given(drawn)(one))()
    if not computed:
        raise AssertionError(f"every case was refused, nothing was checked: {refusals[:1]}")


def _cases(dtype: str, lacks: set[str], context_parallel: bool) -> Cases:
    """What is drawn, each restriction where it is drawn: no case is thrown away."""
    with extra("testing", "ringside.testing.fuzz"):
        from hypothesis import strategies as st

        from ringside.testing import strategies

    lengths = strategies.lengths(min_length=1 if "empty" in lacks else 0, max_length=24)
    given: dict[str, Any] = {
        "layouts_q": strategies.layouts(
            lengths=lengths, **({"padding": st.just(0)} if "padding" in lacks else {})
        ),
        "masks": strategies.masks(
            **({"chunk_sizes": st.just(0)} if "chunks" in lacks else {}),
            **({"aligns": st.just("top_left")} if "bottom_right" in lacks else {}),
        ),
        "dtypes": st.just(dtype),
    }
    if "windows" in lacks:
        given["masks"] = st.sampled_from([rs.Mask.full(), rs.Mask.causal()])
    if "grouped_heads" in lacks:
        given["heads"] = st.integers(1, 3).map(lambda n: (n, n))
    if "other_keys" in lacks:
        given["layouts_k"] = lambda layout: st.none()
    if "scales" in lacks:
        given["softmax_scales"] = strategies.softmax_scales(positive=True)
    if not context_parallel:
        given |= {"partitions": st.just("zigzag"), "comms": st.just("p2p"), "cp_sizes": st.just(1)}
    return strategies.cases(**given)
