"""What all pictures share: their size, their letters, who makes and who saves the figure.

A figure is 8.4 inches wide; where it is shown 840 pixels wide the smallest letters are 11 pixels.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringside._extras import extra
from ringside._pictures.colours import INK, Colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import _core

Path = str | os.PathLike[str] | None
WIDTH, DOTS = 8.4, 200  # inches; pixels an inch
SMALL, NORMAL = 8, 10  # points
LETTER = 0.059  # inches that a small letter takes, as a rule


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """A figure that no window shows and that pyplot does not know."""
    with extra("plot", "a picture"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    return figure


def axes_for(ax: Axes | None, height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    """The caller's axes and their figure, or new ones."""
    if ax is None:
        figure = new_figure(height, width)
        return figure, figure.subplots()
    found: Any = ax.get_figure()
    return found, ax


def saved(figure: Figure, path: Path) -> Figure:
    if path is not None:
        figure.savefig(path)
    return figure


def say(axis: Axes, *lines: str, width: float | None = None) -> None:
    """A title, small, begun at the left, broken where the axes (so many inches wide) end."""
    room = int((width or size_of(axis)[0]) / LETTER)
    broken = [part for line in lines if line for part in textwrap.wrap(line, room)]
    axis.set_title("\n".join(broken), fontsize=SMALL, loc="left", linespacing=1.25)


def size_of(axis: Axes) -> tuple[float, float]:
    """Width and height in inches, before the figure is laid out."""
    box = axis.get_window_extent()
    return float(box.width / axis.figure.dpi), float(box.height / axis.figure.dpi)


def plain(axis: Axes) -> None:
    """Thin, quiet lines; letters of one size."""
    axis.tick_params(labelsize=SMALL, length=2, color=INK)
    axis.spines[:].set(color=INK, linewidth=0.6)
    for label in (axis.xaxis.label, axis.yaxis.label):
        label.set_fontsize(SMALL)


def paint_boxes(
    axis: Axes, name: str, spans: Sequence[Any], faces: Colours, edge: str, line: float = 0.3
) -> None:
    """Rectangles (left, right, top, bottom), all at once; name is the label of the collection."""
    from matplotlib.collections import PolyCollection

    if not len(spans):
        return
    left, right, top, bottom = np.array(spans, float).T
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    boxes: Any = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    drawn = PolyCollection(boxes, facecolors=faces, edgecolors=edge, linewidths=line, label=name)
    axis.add_collection(drawn, autolim=False)


def proof_of(plan: _core.Plan) -> tuple[str, _core.PlanError | None]:
    """What verify() says of a plan, in a line; and why it refuses it, where it does."""
    from ringside import _core

    try:
        proof = plan.verify()
    except _core.PlanError as error:
        return f"refused by verify(): {error}", error
    every = " of every head" if plan.num_heads > 1 else ""
    return f"proved by verify(): each of {proof.pairs:,} visible pairs{every} computed once", None
