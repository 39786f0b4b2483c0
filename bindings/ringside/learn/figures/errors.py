"""Pictures of errors: of each row, and of what a test sees."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument, PackedLayout
from ringside.learn.figures.paper import (
    EVEN,
    INK,
    PADDING,
    RULE,
    SMALL,
    UNSEEN,
    WRONG,
    bare,
    paper,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST, MOST = 1e-17, 1e3  # of the error axis; NaN fills it
TOO_LARGE = 1e-10  # beyond float64's rounding of what is of the order of 1


def figure_of_errors(
    layout: PackedLayout, results: Mapping[str, npt.ArrayLike], title: str
) -> Figure:
    """How far each row of each result is off, in powers of ten; padding in grey.

    Args:
        layout: where the rows lie.
        results: [rows] errors under a name, a panel each; infinite for NaN.
        title: what they are of.

    >>> import ringside as rs
    >>> figure = figure_of_errors(rs.PackedLayout([0, 3], [0, 4]), {"out": [0, 0, 0.5, 0]}, "mine")
    >>> len(figure.axes)
    1
    """
    if not results:
        raise InvalidArgument("got no results; expected some, a panel each. Pass some")
    figure, axes = paper(8.4, 2.6, 1, len(results), squeeze=False, sharey=True)
    for axis, (name, numbers) in zip(axes[0], results.items(), strict=True):
        _draw_rows(axis, layout, np.asarray(numbers, dtype=np.float64))
        plain(axis, name)
        axis.set_xlabel("row", fontsize=SMALL, color=INK)
    axes[0, 0].set_ylabel("error", fontsize=SMALL, color=INK)
    figure.suptitle(title, fontsize=SMALL + 1, color=INK)
    return figure


def _draw_rows(axis: Axes, layout: PackedLayout, numbers: Any) -> None:
    """A bar a row: in red what rounding does not explain."""
    for start, length, rows in zip(
        layout.cu_seqlens_padded, layout.lengths, layout.padded_lengths, strict=False
    ):
        axis.axvspan(start + length - 0.5, start + rows - 0.5, color=PADDING, linewidth=0)
    height = np.where(np.isfinite(numbers), np.clip(numbers, LEAST, MOST), MOST)
    colours = [WRONG if number > TOO_LARGE else RULE for number in numbers]
    axis.bar(np.arange(len(numbers)), height - LEAST, 0.8, bottom=LEAST, color=colours)
    for row in np.flatnonzero(np.isinf(numbers)).tolist():
        axis.text(row, 3e-17, "NaN", rotation=90, ha="center", fontsize=7, color=UNSEEN)
    axis.set(yscale="log", ylim=(LEAST, MOST), xlim=(-0.5, max(len(numbers), 1) - 0.5))
    axis.set_yticks([1e-16, 1e-8, 1])
    axis.locator_params("x", integer=True, nbins=5)


def figure_of_error_table(found: Mapping[str, Mapping[str, float]]) -> Figure:
    """The largest error of each result of each model, in numbers; red is not rounding.

    Args:
        found: of each model, by name, the error of each result; infinite for NaN.

    >>> from ringside import learn
    >>> figure = learn.figure_of_error_table({"mine": {"out": 1e-16, "dq": float("inf")}})
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['1e-16', 'NaN']
    """
    _require_cells(found, "errors")
    figure, axis = paper(8.4, 0.6 + 0.32 * len(found), 1, 1)
    names = list(next(iter(found.values()), {}))
    for y, numbers in enumerate(found.values()):
        for x, number in enumerate(numbers.values()):
            colour, ink = (WRONG, UNSEEN) if number > TOO_LARGE else (UNSEEN, INK)
            _draw_cell(axis, x, y, colour)
            text = (
                "NaN" if np.isinf(number) else f"{number:.0e}" if number < 0.1 else f"{number:.1f}"
            )
            axis.text(x, y, text, ha="center", va="center", fontsize=SMALL, color=ink)
    bare(axis)
    axis.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(found) - 0.5, -0.5))
    axis.set_yticks(range(len(found)), list(found))
    axis.set_xticks(range(len(names)), [f"error of {name}" for name in names])
    axis.xaxis.tick_top()
    axis.tick_params(labelsize=SMALL, length=0, labelcolor=INK)
    return figure


def _require_cells(lines: Mapping[str, Mapping[str, Any]], what: str) -> None:
    if not lines or not all(lines.values()):
        raise InvalidArgument(f"got no {what}; expected some under each name. Pass some")


def _draw_cell(axis: Axes, x: int, y: int, colour: str) -> None:
    axis.bar(x, 0.86, 0.94, bottom=y - 0.43, color=colour, edgecolor=RULE, linewidth=0.6)


def figure_of_habits(seen: Mapping[str, Mapping[str, bool]]) -> Figure:
    """Which faults a way of testing sees: a row a way, a column a fault.

    Args:
        seen: of each way, by name, which faults it flags, by their names; red where the way above
            it does not.

    >>> from ringside import learn
    >>> figure = learn.figure_of_habits({"the usual test": {"one": False, "another": True}})
    >>> figure.axes[0].get_yticklabels()[0].get_text()
    'the usual test: 1'
    """
    _require_cells(seen, "faults")
    figure, axis = paper(8.4, 0.9 + 0.34 * len(seen), 1, 1)
    before: Mapping[str, bool] = {}
    for y, flagged in enumerate(seen.values()):
        for x, (name, flag) in enumerate(flagged.items()):
            colour = EVEN if before.get(name, y == 0) else WRONG
            _draw_cell(axis, x, y, colour if flag else UNSEEN)
        before = flagged
    names = list(before)
    bare(axis)
    axis.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(seen) - 0.5, -0.5))
    axis.set_yticks(range(len(seen)), [f"{n}: {sum(f.values())}" for n, f in seen.items()])
    axis.set_xticks(range(len(names)), [textwrap.fill(name, 11) for name in names])
    axis.xaxis.tick_top()
    axis.tick_params(labelsize=SMALL, length=0, labelcolor=INK)
    return figure
