"""Cases of what a feature claims."""

from __future__ import annotations

import dataclasses
from itertools import accumulate
from typing import Any

import ringside as rs
from ringside._extras import extra
from ringside.testing.cases import Case
from ringside.testing.peers.adapter import UNITS, Supports
from ringside.testing.peers.settings import Axes

with extra("testing", "ringside peers"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = ["cases", "restricted"]


def restricted(supports: Supports, axes: Axes) -> Supports | str:
    """What is both claimed and asked for; or in words what is asked for and not claimed.

    >>> restricted(Supports(cp=(2, 4)), Axes(cp=(4, 8))).cp
    (4,)
    >>> restricted(Supports(reasons={"masks": "no full mask"}), Axes(masks=("full",)))
    'claims masks causal (no full mask), not full'
    """
    changes: dict[str, Any] = {}
    for name in ("cp", "masks", "heads", "scales"):
        asked, claimed = getattr(axes, name), getattr(supports, name)
        if asked is None:
            continue
        changes[name] = tuple(x for x in claimed if x in asked)
        if not changes[name]:
            reason = f" ({supports.reasons[name]})" if name in supports.reasons else ""
            return f"claims {name} {_words(claimed)}{reason}, not {_words(asked)}"
    if axes.unit is not None:
        changes["unit"] = max(axes.unit, supports.unit, key=UNITS.index)
    for name in ("longest", "head_dim", "dtype"):
        if getattr(axes, name) is not None:
            changes[name] = getattr(axes, name)
    if axes.documents is not None:
        changes["documents"] = min(axes.documents, supports.documents)
    if axes.equal:
        changes["equal"] = True
    if axes.no_nan:
        changes["nan"] = False
    if axes.no_padding:
        changes["padding"] = False
    return dataclasses.replace(supports, **changes)


def _words(values: tuple[Any, ...]) -> str:
    return ", ".join(map(_word, values))


def _word(value: Any) -> str:
    """As the command line has it."""
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    return "default" if value is None else str(value)


def masks(kind: str) -> SearchStrategy[rs.Mask]:
    """Of one kind of adapter.MASKS."""
    few = st.integers(1, 9)
    return {
        "full": st.just(rs.Mask.full()),
        "causal": st.just(rs.Mask.causal()),
        "window": few.map(lambda left: rs.Mask.sliding_window(left, 0)),
        "band": st.tuples(few, few).map(lambda both: rs.Mask.sliding_window(*both)),
        "chunked": few.map(rs.Mask.chunked),
    }[kind]


@st.composite
def cases(draw: DrawFn, supports: Supports) -> Case:
    """Whole cases; they shrink to one document of one unit, two ranks and one head."""
    cp_size = draw(st.sampled_from(supports.cp))
    unit = {"cp": cp_size, "2cp": 2 * cp_size}.get(supports.unit, 1)
    units = st.integers(1, supports.longest)
    count = draw(st.integers(1, supports.documents))
    rows = [draw(units) * unit] * count if supports.equal else _each(draw, units, unit, count)
    if supports.unit == "pack":
        rows[-1] += -sum(rows) % cp_size
    lengths = rows
    if supports.padding and draw(st.booleans()):
        lengths = [draw(st.integers(1, n)) for n in rows]
    num_heads, num_kv_heads = draw(st.sampled_from(supports.heads))
    return Case(
        rs.PackedLayout([0, *accumulate(lengths)], [0, *accumulate(rows)]),
        mask=draw(st.sampled_from(supports.masks).flatmap(masks)),
        cp_size=cp_size,
        partition=supports.partition,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=supports.head_dim,
        head_dim_v=supports.head_dim,
        softmax_scale=draw(st.sampled_from(supports.scales)),
        dtype=supports.dtype,
        seed=draw(st.integers(0, 2**31 - 1)),
    )


def _each(draw: DrawFn, units: SearchStrategy[int], unit: int, count: int) -> list[int]:
    return [draw(units) * unit for _ in range(count)]
