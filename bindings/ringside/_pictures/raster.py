"""Who computes which pair, and when, as an image: read from the tiles, as a kernel reads them.

An image shows all rows of a pack, or one document's. Where there are more rows than pixels it shows
some of them, evenly spaced: a pixel is one pair, never a mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringside._pictures.tables import Records, tiles_of

if TYPE_CHECKING:
    from ringside import _core

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
EXACT, PIXELS = 2048, 800  # rows of a pack that is shown whole; pixels a side
NOBODY, PADDING, MISSED = -1, -2, -3  # hidden by the mask; no token; visible, and not computed


@dataclass(frozen=True)
class Shown:
    """Rows of one side that an image shows.

    Attributes:
        begin, end: the global rows that it spans.
        rows: [pixels] those of them that it shows, rising.
    """

    begin: int
    end: int
    rows: Integers

    @classmethod
    def of(cls, begin: int, end: int, pixels: int) -> Shown:
        """Evenly spaced ones, all of them where there is room.

        >>> Shown.of(4, 10, 3).rows.tolist()
        [4, 6, 8]
        """
        count = min(end - begin, pixels)
        return cls(begin, end, begin + np.arange(count) * (end - begin) // max(count, 1))

    def pixels_of(self, rows: Integers) -> tuple[Integers, Integers]:
        """(pixel, index into rows) of those rows that are shown."""
        pixel = np.searchsorted(self.rows, rows)
        inside = pixel < len(self.rows)
        inside[inside] = self.rows[pixel[inside]] == rows[inside]
        return pixel[inside], np.nonzero(inside)[0]


@dataclass(frozen=True)
class Raster:
    """Of one query head.

    Attributes:
        q, k: the rows shown.
        rank, step: [pixels of q, pixels of k] who computes a pair and in which step; NOBODY or
            MISSED.
        owner_q, owner_k: [pixels] whose row it is; PADDING.
    """

    q: Shown
    k: Shown
    rank: Integers
    step: Integers
    owner_q: Integers
    owner_k: Integers


def shown_of(
    layouts: tuple[_core.PackedLayout, _core.PackedLayout], sequence: int | None, pixels: int
) -> tuple[Shown, Shown]:
    """Of both sides: all rows, or those of one document; at most `pixels`."""
    sides = []
    for layout in layouts:
        starts = layout.cu_seqlens_padded.astype(np.int64)
        span = (0, layout.num_rows) if sequence is None else starts[[sequence, sequence + 1]]
        sides.append(Shown.of(int(span[0]), int(span[1]), pixels))
    return sides[0], sides[1]


def raster(plan: _core.Plan, sequence: int | None, pixels: int, head: int = 0) -> Raster:
    """All rows, or those of one document; at most `pixels` a side.

    >>> import ringside as rs
    >>> image = raster(rs.plan(rs.PackedLayout([0, 4]), cp_size=2), None, 100)
    >>> image.rank.tolist()
    [[0, -1, -1, -1], [1, 1, -1, -1], [1, 1, 1, -1], [0, 0, 0, 0]]
    >>> image.step[3].tolist(), image.owner_q.tolist()
    ([0, 1, 1, 0], [0, 1, 1, 0])
    """
    layouts = plan.layout_q, plan.layout_k
    q, k = shown_of(layouts, sequence, pixels)
    visible = seen(plan.mask, layouts, (q, k))
    rank = np.where(visible, MISSED, NOBODY)
    step = rank.copy()
    tiles = tiles_of(plan, head)
    if sequence is not None:
        tiles = tiles[tiles["seq"] == sequence]
    begins = [layout.cu_seqlens_padded.astype(np.int64)[tiles["seq"]] for layout in layouts]
    near = _meets(q, tiles, "q", begins[0]) & _meets(k, tiles, "k", begins[1])
    tiles, begins = tiles[near], [x[near] for x in begins]
    for tile, begin_q, begin_k in zip(tiles, *(x.tolist() for x in begins), strict=True):
        line, _ = q.pixels_of(begin_q + _positions(tile, "q"))
        column, _ = k.pixels_of(begin_k + _positions(tile, "k"))
        cells = np.ix_(line, column)
        there = visible[cells]
        rank[cells] = np.where(there, tile["rank"], rank[cells])
        step[cells] = np.where(there, tile["step"], step[cells])
    return Raster(q, k, rank, step, owners_of(plan, "q", q), owners_of(plan, "k", k))


def _meets(shown: Shown, tiles: Records, side: str, begins: Integers) -> Booleans:
    """[tiles] whether a row that is shown lies between the first and the last of a tile.

    Of a pack of many short documents that is so of few: the others take no step each.
    """
    first = begins + tiles[f"{side}_pos"]
    last = first + tiles[f"{side}_stride"] * (tiles[f"{side}_len"] - 1)
    before, up_to = (np.searchsorted(shown.rows, first), np.searchsorted(shown.rows, last, "right"))
    return np.asarray(before < up_to)


def _positions(tile: np.void, side: str) -> Integers:
    return np.asarray(
        tile[f"{side}_pos"]
        + tile[f"{side}_stride"] * np.arange(tile[f"{side}_len"], dtype=np.int64)
    )


def tokens_of(layout: _core.PackedLayout, rows: Integers) -> tuple[Integers, Integers, Booleans]:
    """(document, position in it, whether it is a token) of some rows of a pack."""
    starts = layout.cu_seqlens_padded.astype(np.int64)
    document = np.searchsorted(starts, rows, side="right") - 1
    position = rows - starts[document]
    lengths = np.append(layout.lengths, 0)  # rows of no document are none of the pack
    return document, position, position < lengths[document]


def seen(
    mask: _core.Mask,
    layouts: tuple[_core.PackedLayout, _core.PackedLayout],
    shown: tuple[Shown, Shown],
) -> Booleans:
    """[pixels of q, pixels of k] whether the mask lets a row see a key.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout([0, 2, 3], [0, 3, 4])
    >>> sides = shown_of((layout, layout), None, 9)
    >>> seen(rs.Mask.causal(), (layout, layout), sides).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    """
    (document, q, _), (of_key, key, is_token) = (
        tokens_of(layout, side.rows) for layout, side in zip(layouts, shown, strict=True)
    )
    lengths = [layout.lengths[document] for layout in layouts]
    begin, end = mask._visible(q, *lengths)
    in_sight = (key >= begin[:, None]) & (key < end[:, None])
    return np.asarray(in_sight & (of_key == document[:, None]) & is_token)


def owners_of(plan: _core.Plan, side: str, shown: Shown) -> Integers:
    """[pixels] whose row it is; PADDING."""
    layout = plan.layout_q if side == "q" else plan.layout_k
    owner = np.full(layout.num_rows, NOBODY, np.int64)
    for rank in range(plan.cp_size):
        owner[plan.row_indices(rank, side=side)] = rank
    return np.where(tokens_of(layout, shown.rows)[2], owner[shown.rows], PADDING)
