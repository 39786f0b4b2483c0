"""What all pictures share: size of letters, neutral colours, axes that say only what they must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringside._extras import extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL, NORMAL = 9, 10.5  # points
INK, RULE = "#3C424D", "#8A909C"
EVEN, ODD = "#9DBBDD", "#E8CF8E"  # documents, in turn; a hue of COLOURS is a rank, everywhere
PADDING, UNSEEN, WRONG = "#D5D8DE", "#FFFFFF", "#C1121F"


def paper(width: float, height: float, *grid: int, **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes, which no notebook and no pyplot keeps alive."""
    with extra("learn", "a picture of ringside.learn"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*grid, **options)


def rank_colours(cp_size: int) -> Any:
    """[cp_size, 3] RGB: those of the ranks in every picture of a plan."""
    from ringside._pictures import colours

    return colours.rank_colours(cp_size)


def thousands(axis: Axes) -> None:
    """Numbers of rows as 12,000 along x."""
    axis.xaxis.set_major_formatter("{x:,.0f}")


def plain(axis: Axes, title: str = "") -> None:
    """Thin ink, small letters, the title at the left."""
    axis.tick_params(labelsize=SMALL, length=2, color=RULE, labelcolor=INK)
    axis.spines[:].set(color=RULE, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    if title:
        axis.set_title(title, fontsize=NORMAL, color=INK, loc="left")


def bare(axis: Axes, title: str = "") -> None:
    """No frame, no ticks."""
    plain(axis, title)
    axis.spines[:].set_visible(False)
    axis.set(xticks=[], yticks=[])
