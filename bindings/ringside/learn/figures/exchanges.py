"""Pictures of exchanges as matrices, and of a buffer that pieces of a sequence share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument
from ringside._pictures.colours import rank_colours
from ringside.learn.figures.paper import INK, NORMAL, RULE, SMALL, UNSEEN, WRONG, bare, paper, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import MicroSequenceBuffer

MAX_NUMBERS = 24  # cells a side of which numbers are written


def figure_of_exchange(
    source: npt.ArrayLike, rank_before: npt.ArrayLike, rank_after: npt.ArrayLike
) -> Figure:
    """An exchange as a matrix of zeros and ones, and its transpose; a hue is the rank that sends.

    Args:
        source, rank_before, rank_after: as of learn.moves, which may be unpacked here.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> plan = rs.plan(rs.PackedLayout([0, 12]), cp_size=3)
    >>> len(learn.figure_of_exchange(*learn.moves(plan, 1)).axes)
    2
    """
    source, before, after = (np.asarray(x) for x in (source, rank_before, rank_after))
    figure, (there, back) = paper(8.4, 4.3, 1, 2)
    colours = rank_colours(int(max(before.max(initial=0), after.max(initial=0))) + 1)
    _draw_matrix(there, _pixels(source, before, colours[before[source]]), (after, before))
    image = _pixels(source, before, colours[after]).swapaxes(0, 1)
    _draw_matrix(back, image, (before, after))
    plain(there, "E, the exchange: who sends keys to whom")
    plain(back, "E', its transpose: who sends gradients to whom")
    for axis, word in ((there, "before"), (back, "after")):
        axis.set_xlabel(f"cells {word}, by rank", fontsize=SMALL, color=INK)
    there.set_ylabel("cells after, by rank", fontsize=SMALL, color=INK)
    back.set_ylabel("cells before, by rank", fontsize=SMALL, color=INK)
    return figure


def _pixels(source: Any, before: Any, colours: Any) -> Any:
    """[after, before, 3] white, and of each copy its colour."""
    image = np.ones((len(source), len(before), 3))
    image[np.arange(len(source)), source] = colours
    return image


def _draw_matrix(axis: Axes, image: Any, ranks: tuple[Any, Any]) -> None:
    """The image, with lines and ticks where another rank begins."""
    height, width = image.shape[:2]
    if image.size:
        axis.imshow(image, extent=(0, width, height, 0), interpolation="nearest", aspect="auto")
    for of_side, line in zip(ranks, (axis.axhline, axis.axvline), strict=True):
        for begin in (np.flatnonzero(np.diff(of_side)) + 1).tolist():
            line(begin, color=RULE, linewidth=0.6)
    axis.set_yticks(*_middles(ranks[0]))
    axis.set_xticks(*_middles(ranks[1]))


def _middles(of_side: Any) -> tuple[list[float], list[str]]:
    """Where each rank's cells have their middle, and its number."""
    ranks = np.unique(of_side)
    places = [float(np.flatnonzero(of_side == rank).mean()) + 0.5 for rank in ranks]
    return places, [str(rank) for rank in ranks.tolist()]


def figure_of_transpose(
    moved: tuple[Any, Any, Any], y: npt.ArrayLike, got: npt.ArrayLike | None
) -> Figure:
    """An exchange, y beside it, and below it what comes back: as it should be, and as it does.

    Args:
        moved: source, rank_before and rank_after, as of learn.moves.
        y: [cells after] a number of each.
        got: [cells before] what somebody says E'y is; None for nothing.

    >>> figure = figure_of_transpose(([0, 0], [0], [0, 1]), [2.0, 3.0], [5.0])
    >>> len(figure.axes)
    4
    """
    source, before, after = (np.asarray(x) for x in moved)
    numbers = np.asarray(y, dtype=np.float64)
    expected = np.zeros(len(before))
    np.add.at(expected, source, numbers)
    sizes = {"width_ratios": [8, 1], "height_ratios": [8, 1, 1]}
    figure, axes = paper(6.4, 2.2 + min(0.3 * len(source), 3.0), 3, 2, gridspec_kw=sizes)
    colours = rank_colours(int(max(before.max(initial=0), after.max(initial=0))) + 1)
    _draw_matrix(axes[0, 0], _pixels(source, before, colours[before[source]]), (after, before))
    if len(source) <= MAX_NUMBERS:
        for row, column in enumerate(source.tolist()):
            axes[0, 0].text(column + 0.5, row + 0.5, "1", ha="center", va="center", color=UNSEEN)
    plain(axes[0, 0], "E: a row for each cell after, a column for each before")
    _draw_numbers(axes[0, 1], numbers[:, None], "y", None)
    _draw_numbers(axes[1, 0], expected[None], "E'y", None)
    shown = np.full(len(before), np.nan) if got is None else np.asarray(got, dtype=np.float64)
    _draw_numbers(axes[2, 0], shown[None], "got", expected[None])
    for axis in axes[1:, 1]:
        axis.remove()
    return figure


def _draw_numbers(axis: Axes, numbers: Any, name: str, expected: Any | None) -> None:
    """A strip of numbers; what is not as expected is red."""
    bare(axis)
    height, width = numbers.shape
    axis.set(xlim=(0, width or 1), ylim=(height or 1, 0))
    if width == 1 and height > 1:
        axis.set_title(name, fontsize=NORMAL, color=INK)
    else:
        axis.set_ylabel(name, fontsize=NORMAL, color=INK, rotation=0, ha="right", va="center")
    if max(numbers.shape) > MAX_NUMBERS:
        return
    for (i, j), number in np.ndenumerate(numbers):
        wrong = expected is not None and number != expected[i, j]
        ink = WRONG if wrong else INK
        text = "?" if np.isnan(number) else f"{number:g}"
        axis.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=SMALL, color=ink)


def figure_of_micro_sequences(buffer: MicroSequenceBuffer) -> Figure:
    """Which rows each piece of a packed sequence owns and sees, and how often dk of a row is added.

    Args:
        buffer: shared by the pieces.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> buffer = rs.MicroSequenceBuffer(rs.PackedLayout([0, 5, 11, 20]), [0, 8, 14, 20])
    >>> [axis.get_title(loc="left") for axis in learn.figure_of_micro_sequences(buffer).axes][1]
    'contributions to dk and dv of each row: 1 to 2'
    """
    pieces, rows = buffer.row_slices, buffer.layout.num_rows
    if not rows:
        raise InvalidArgument(
            "got a buffer of no rows; expected some, to be drawn. Pass such a one"
        )
    sizes = {"height_ratios": [0.42 * len(pieces), 1]}
    figure, (seen, sums) = paper(
        8.4, 1.9 + 0.32 * len(pieces), 2, 1, sharex=True, gridspec_kw=sizes
    )
    counts = np.zeros(rows, np.int64)
    for i, own in enumerate(pieces):
        first = buffer.first_document_begin(i)
        counts[first : own.stop] += 1
        seen.barh(i, own.start - first, 0.7, left=first, color=SEEN)
        seen.barh(i, own.stop - own.start, 0.7, left=own.start, color=OWN)
    sums.stairs(counts, np.arange(rows + 1), fill=True, color=SEEN)
    for start in buffer.layout.cu_seqlens_padded[1:-1].tolist():
        seen.axvline(start, color=RULE, linewidth=0.6, linestyle=(0, (2, 2)))
    plain(seen, "rows that a piece owns, dark, and those it sees, light; dashes: documents")
    plain(sums, f"contributions to dk and dv of each row: {counts.min()} to {counts.max()}")
    seen.set(ylim=(len(pieces) - 0.5, -0.5), xlim=(0, rows), yticks=range(len(pieces)))
    seen.set_ylabel("piece", fontsize=SMALL, color=INK)
    sums.set_xlabel("row of the packed sequence", fontsize=SMALL, color=INK)
    sums.set(ylim=(0, counts.max() + 0.3), yticks=range(counts.max() + 1))
    return figure


SEEN, OWN = "#BBCCEE", "#4477AA"
