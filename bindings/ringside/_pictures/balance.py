"""Shares of ranks over their number: a look for each partition, and both axes by doublings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Paul Tol's scheme "bright", and a marker each: told apart without colours, too.
STYLES = (
    ("#4477AA", "o"),
    ("#EE6677", "s"),
    ("#CCBB44", "^"),
    ("#228833", "D"),
    ("#66CCEE", "v"),
    ("#AA3377", "P"),
)


def scale(axis: Axes, sizes: Sequence[int], most: float) -> None:
    """Both axes by doublings: numbers of ranks as they are, shares from 1 to beyond the most."""
    ticks = [1]
    while ticks[-1] < most or len(ticks) < 2:
        ticks.append(2 * ticks[-1])
    axis.set(xscale="log", yscale="log", xticks=sizes, yticks=ticks, ylim=(0.93, 1.07 * ticks[-1]))
    axis.set_xticks([], minor=True)
    axis.set_yticks([], minor=True)
    axis.set_xticklabels([f"{size:,}" for size in sizes])
    axis.set_yticklabels([f"{tick} x" for tick in ticks])
