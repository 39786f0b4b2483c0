"""The mask: queries down, keys to the right, and who computes each pair, or that nobody need."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringside._pictures.colours import (
    BLACK,
    INK,
    PADDED,
    SEEN,
    UNSEEN,
    Colours,
    ink_on,
    lightened,
    rgb,
)
from ringside._pictures.figure import SMALL, plain, size_of
from ringside._pictures.raster import MISSED, NOBODY, PADDING, Integers, Raster, Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ringside import _core

STRIP = 0.05  # of a side: how wide the strips of owners are
FEW_LINES = 40  # documents between which lines are drawn
CELLS = 32  # rows a side up to which single pairs can be told


class Mark(NamedTuple):
    """A place to point at, in rows of the pack; either may be None."""

    row: int | None
    key: int | None


def paint_plan(
    axis: Axes, plan: _core.Plan, image: Raster, colours: Colours, only: int | None = None
) -> None:
    """Pairs in the colour of who computes them, later steps lighter; strips: whose rows they are.

    Args:
        only: a rank: the pairs of all others are grey.
    """
    box = _frame(axis, image.q, image.k, strips=True)
    axis.imshow(
        pixels_of(plan, image, colours, only),
        extent=box.inner,
        interpolation="nearest",
        aspect="auto",
    )
    _paint_strip(axis, box.left, image.owner_q, colours, across=False)
    _paint_strip(axis, box.top, image.owner_k, colours, across=True)
    _paint_borders(axis, (plan.layout_q, plan.layout_k), (image.q, image.k))


def paint_mask(
    axis: Axes,
    layouts: tuple[_core.PackedLayout, _core.PackedLayout],
    shown: tuple[Shown, Shown],
    visible: np.ndarray[Any, Any],
    padding: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
) -> None:
    """Pairs that the mask lets see each other in grey, rows of no token lighter."""
    box = _frame(axis, *shown, strips=False)
    index = np.where(padding[0][:, None] | padding[1], 2, visible)
    pixels = bytes_of(np.array([rgb(UNSEEN), rgb(SEEN), rgb(PADDED)]))[index]
    if pixels.size:
        axis.imshow(pixels, extent=box.inner, interpolation="nearest", aspect="auto")
    _paint_borders(axis, layouts, shown)
    _paint_cells(axis, shown)


def paint_mark(axis: Axes, mark: Mark, shown: tuple[Shown, Shown]) -> None:
    """Lines through a row and through a key, and a ring where they meet."""
    q, k = shown
    if mark.row is not None and q.begin <= mark.row < q.end:
        axis.hlines(mark.row + 0.5, k.begin, k.end, color="black", linestyle="--", linewidth=0.8)
    if mark.key is not None and k.begin <= mark.key < k.end:
        axis.vlines(mark.key + 0.5, q.begin, q.end, color="black", linestyle="--", linewidth=0.8)
    if mark.row is not None and mark.key is not None:
        axis.plot(
            [mark.key + 0.5],
            [mark.row + 0.5],
            *("o",),
            markersize=4,
            markerfacecolor="none",
            markeredgecolor="black",
            markeredgewidth=1.3,
            zorder=6,
        )


class _Box(NamedTuple):
    """Where what lies, as imshow counts: left, right, bottom, top."""

    inner: tuple[float, float, float, float]
    left: tuple[float, float, float, float]
    top: tuple[float, float, float, float]


def _frame(axis: Axes, q: Shown, k: Shown, *, strips: bool) -> _Box:
    right, bottom = max(k.end, k.begin + 1), max(q.end, q.begin + 1)
    wide = (right - k.begin) * STRIP if strips else 0
    high = (bottom - q.begin) * STRIP if strips else 0
    axis.set(
        xlim=(k.begin - wide, right),
        ylim=(bottom, q.begin - high),
        box_aspect=aspect_of(q, k),
        anchor="N",
        xlabel="key (token)",
        ylabel="query (token)",
    )
    axis.set_xticks([k.begin, right], [f"{k.begin:,}", f"{right:,}"])
    axis.set_yticks([q.begin, bottom], [f"{q.begin:,}", f"{bottom:,}"])
    plain(axis)
    return _Box(
        (k.begin, right, bottom, q.begin),
        (k.begin - wide, k.begin, bottom, q.begin),
        (k.begin, right, q.begin, q.begin - high),
    )


def aspect_of(q: Shown, k: Shown) -> float:
    """Height over width: pairs are square, where that makes no sliver."""
    ratio = max(q.end - q.begin, 1) / max(k.end - k.begin, 1)
    return ratio if 0.4 <= ratio <= 1.2 else 1.0


def pixels_of(
    plan: _core.Plan, image: Raster, colours: Colours, only: int | None = None
) -> np.ndarray[Any, Any]:
    """[pixels of q, pixels of k, 3] of a raster, as paint_plan shows it, 0 to 255."""
    if not image.rank.size:
        return np.full((1, 1, 3), 255, np.uint8)
    table = lightened(colours[:, None], np.arange(plan.num_steps), plan.num_steps)
    if only is not None:
        table[np.arange(plan.cp_size) != only] = rgb(PADDED)
    shades = [*table.reshape(-1, 3), *map(rgb, (UNSEEN, BLACK, PADDED))]
    index = image.rank * plan.num_steps + image.step
    index[image.rank == NOBODY] = len(shades) - 3
    index[image.rank == MISSED] = len(shades) - 2
    index[(image.owner_q == PADDING)[:, None] | (image.owner_k == PADDING)] = len(shades) - 1
    return np.asarray(bytes_of(np.array(shades))[index])


def bytes_of(colours: Colours) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """0 to 1 as 0 to 255."""
    return np.rint(colours * 255).astype(np.uint8)


def runs_of(owners: Integers) -> Iterator[tuple[int, int, int]]:
    """(begin, end, owner) of runs that are alike.

    >>> list(runs_of(np.array([1, 1, 0])))
    [(0, 2, 1), (2, 3, 0)]
    """
    edges = np.concatenate([[0], np.nonzero(np.diff(owners))[0] + 1, [len(owners)]])
    for begin, end in pairwise(edges.tolist()):
        if end > begin:
            yield begin, end, int(owners[begin])


def _paint_strip(
    axis: Axes,
    extent: tuple[float, float, float, float],
    owners: Integers,
    colours: Colours,
    *,
    across: bool,
) -> None:
    """A strip in the colours of owners, with their numbers where there is room for them."""
    if not len(owners):
        return
    shades = np.concatenate([colours, [rgb(PADDED), rgb(UNSEEN)]])  # [-2], [-1]
    pixels = shades[owners]
    axis.imshow(
        pixels[None] if across else pixels[:, None],
        extent=extent,
        interpolation="nearest",
        aspect="auto",
        zorder=3,
    )
    left, right, bottom, top = extent
    width = min(size_of(axis)[0], 3.2)  # inches, about
    height = width * float(axis.get_box_aspect() or 1)
    if min(width, height) * STRIP < 0.1:
        return
    for begin, end, owner in runs_of(owners):
        room = (0.08 * len(str(owner)) + 0.04) / width if across else 0.15 / height
        if owner < 0 or end - begin < room * len(owners):
            continue
        middle = (begin + end) / 2 / len(owners)
        at = (
            (left + middle * (right - left), (top + bottom) / 2)
            if across
            else ((left + right) / 2, top + middle * (bottom - top))
        )
        write(axis, at, str(owner), colours[owner])


def write(axis: Axes, at: tuple[float, float], text: str, ground: Colours, **options: Any) -> None:
    """Small letters that can be read on their ground."""
    options = {"ha": "center", "va": "center_baseline", "zorder": 4, "in_layout": False, **options}
    axis.text(*at, text, color=ink_on(ground), fontsize=SMALL, **options)


def _paint_borders(
    axis: Axes,
    layouts: tuple[_core.PackedLayout, _core.PackedLayout],
    shown: tuple[Shown, Shown],
) -> None:
    if layouts[0].num_sequences > FEW_LINES:
        return
    for layout, side, line in zip(layouts, shown, (axis.axhline, axis.axvline), strict=True):
        for start in np.unique(layout.cu_seqlens_padded).tolist():
            if side.begin < start < side.end:
                line(start, color=INK, linewidth=0.6)


def _paint_cells(axis: Axes, shown: tuple[Shown, Shown]) -> None:
    """Lines between single rows, where they are few."""
    for side, line in zip(shown, (axis.axhline, axis.axvline), strict=True):
        for row in range(side.begin + 1, side.end if side.end - side.begin <= CELLS else 0):
            line(row, color=PADDED, linewidth=0.4)


def paint_differences(axis: Axes, differs: np.ndarray[Any, Any], shown: tuple[Shown, Shown]) -> str:
    """Plus where another mask sees too much, minus where too little. Returns how many, in words."""
    for sign, symbol in ((1, "P"), (-1, "_")):
        rows, keys = np.nonzero(differs == sign)
        room = 2000 / max(side.end - side.begin for side in shown)
        axis.scatter(
            keys + 0.5,
            rows + 0.5,
            s=float(np.clip(room, 6, 90)),
            marker=symbol,
            c="black",
            linewidths=0.6 if sign > 0 else 2,
            zorder=5,
        )
    extra, lacking = int((differs > 0).sum()), int((differs < 0).sum())
    if not extra and not lacking:
        return "the other agrees"
    return f"the other sees {extra:,} too many (plus) and misses {lacking:,} (minus)"
