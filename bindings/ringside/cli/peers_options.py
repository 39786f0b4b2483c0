"""What `ringside peers` is told of cases and of precision, out of its flags."""

from __future__ import annotations

from typing import Any

from ringside._extras import extra
from ringside.testing.check import Demands
from ringside.testing.dtypes import FLOATS
from ringside.testing.peers.adapter import MASKS, UNITS
from ringside.testing.peers.settings import Axes

with extra("cli", "the ringside command"):
    from ringside.cli.fuzz_cases import names_from, numbers_from  # needs Hypothesis, too

__all__ = ["axes_from", "demands_from"]

PADDINGS = ("zero", "any")
DEFAULT = "default"  # of softmax_scale: 1/sqrt(head_dim)


def axes_from(**given: Any) -> Axes:
    """The axes; text is what the flags of this name say, None leaves an axis to the adapters.

    >>> axes_from(cp="2,4", heads="4:2", scales="default,0.5", longest=3)  # doctest: +ELLIPSIS
    Axes(cp=(2, 4), masks=None, heads=((4, 2),), ..., scales=(None, 0.5), ...)
    """
    read: dict[str, Any] = {
        "cp": lambda text: numbers_from(text, "cp"),
        "masks": lambda text: names_from(text, "masks", MASKS),
        "heads": _heads,
        "scales": _scales,
        "unit": lambda text: _one(text, "lengths", UNITS),
        "dtype": lambda text: _one(text, "dtype", tuple(FLOATS)),
    }
    said = {name: x for name, x in given.items() if x is not None}
    return Axes(**{name: read.get(name, lambda x: x)(x) for name, x in said.items()})


def demands_from(**given: Any) -> dict[str, Any]:
    """Arguments of Demands that take the place of the adapters'; None leaves one to them.

    >>> demands_from(runs=2, merge="bfloat16", padding=None)
    {'runs': 2, 'merge': 'bfloat16'}
    """
    said = {name: x for name, x in given.items() if x is not None}
    for name in ("accumulate", "merge", "partial", "gradients"):
        if name in said:
            _one(said[name], name, tuple(FLOATS))
    if "padding" in said:
        _one(said["padding"], "padding", PADDINGS)
    Demands(**said)
    return said


def _one(text: str, name: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise ValueError(f'{name}="{text}"; expected one of {", ".join(known)}')
    return text


def _heads(text: str) -> tuple[tuple[int, int], ...]:
    try:
        pairs = [tuple(map(int, part.split(":"))) for part in text.split(",")]
        return tuple((heads, kv_heads) for heads, kv_heads in pairs)
    except ValueError:
        raise ValueError(f'heads="{text}"; expected pairs such as 4:2,4:1') from None


def _scales(text: str) -> tuple[float | None, ...]:
    try:
        return tuple(None if x == DEFAULT else float(x) for x in text.split(","))
    except ValueError:
        raise ValueError(
            f'scales="{text}"; expected numbers or {DEFAULT}, as {DEFAULT},0.25'
        ) from None
