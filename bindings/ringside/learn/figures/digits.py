"""Pictures of what is left of a sum's digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument
from ringside.learn.figures.paper import INK, SMALL, WRONG, paper, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = ("#332288", "#AA3377", "#228833", "#66CCEE", "#999933")


def figure_of_errors_by_step(
    panels: Mapping[str, Mapping[str, npt.ArrayLike]], largest: float = 1.0
) -> Figure:
    """How errors grow from merge to merge, a panel each, a line each.

    Args:
        panels: under a title, [steps] errors under a name.
        largest: the size of what is summed up; errors are shown as fractions of it.

    Raises:
        InvalidArgument: no panel, or one without a line.

    >>> from ringside import learn
    >>> figure = learn.figure_of_errors_by_step({"merged in": {"float32": [1e-8, 2e-8]}})
    >>> len(figure.axes)
    1
    """
    if not panels or not all(panels.values()):
        raise InvalidArgument("got no errors; expected a line in each panel. Pass some")
    figure, axes = paper(8.4, 3.4, 1, len(panels), squeeze=False, sharey=True)
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for (name, errors), colour in zip(lines.items(), LINES * len(lines), strict=False):
            _draw_line(axis, name, np.asarray(errors) / largest, colour)
        plain(axis, title)
        axis.set_xlabel("merges", fontsize=SMALL, color=INK)
        axis.legend(fontsize=SMALL, frameon=False, loc="lower right", labelcolor=INK)
    axes[0, 0].set_ylabel("largest error, of the largest value", fontsize=SMALL, color=INK)
    _in_powers_of_ten(axes[0, 0])
    return figure


def _draw_line(axis: Axes, name: str, errors: npt.NDArray[np.float64], colour: str) -> None:
    steps = np.arange(1, len(errors) + 1)
    axis.plot(steps, np.maximum(errors, 1e-18), color=colour, label=name, linewidth=1.4)
    axis.set(xlim=(1, max(len(errors), 2)))


def _in_powers_of_ten(axis: Axes) -> None:
    """Whole ones at both ends."""
    axis.set(yscale="log")
    low, high = np.log10(axis.get_ylim())
    axis.set(ylim=(10.0 ** np.floor(low), 10.0 ** np.ceil(high)))
    axis.tick_params(axis="y", which="minor", length=0, labelleft=False)


def figure_of_bound(errors: Mapping[str, npt.ArrayLike], bound: float | None) -> Figure:
    """Errors after each merge, and a bound of the last one.

    Args:
        errors: [merges] under the name of a type; the first is the one bounded.
        bound: None for none.

    >>> figure = figure_of_bound({"float32": [1e-8, 2e-8]}, 1e-7)
    >>> len(figure.axes)
    1
    """
    figure, axis = paper(6.4, 3.2, 1, 1)
    for (name, numbers), colour in zip(errors.items(), LINES, strict=False):
        _draw_line(axis, f"error in {name}", np.asarray(numbers, dtype=np.float64), colour)
        axis.plot(len(np.asarray(numbers)), np.asarray(numbers)[-1], "o", color=colour)
    if bound is not None and np.isfinite(bound):
        axis.axhline(max(bound, 1e-18), color=WRONG, linestyle=(0, (4, 2)), label="the bound")
    plain(axis)
    _in_powers_of_ten(axis)
    axis.set_xlabel("merges", fontsize=SMALL, color=INK)
    axis.set_ylabel("largest error", fontsize=SMALL, color=INK)
    axis.legend(fontsize=SMALL, frameon=False, labelcolor=INK)
    return figure
