"""Who computes which pair, and when, as an image: read from the tiles, as a kernel reads them.

An image shows all rows of a pack, or one document's. Where there are more rows than pixels it shows
some of them, evenly spaced: a pixel is one pair, never a mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ringside import _core

Integers = npt.NDArray[np.int64]
NOBODY, PADDING = -1, -2


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
    """Of the first query head.

    Attributes:
        q, k: the rows shown.
        rank, step: [pixels of q, pixels of k] who computes a pair and in which step; NOBODY.
        owner_q, owner_k: [pixels] whose row it is; PADDING.
    """

    q: Shown
    k: Shown
    rank: Integers
    step: Integers
    owner_q: Integers
    owner_k: Integers


def raster(plan: _core.Plan, sequence: int | None, pixels: int) -> Raster:
    """All rows, or those of one document; at most `pixels` a side.

    >>> import ringside as rs
    >>> image = raster(rs.plan(rs.PackedLayout([0, 4]), cp_size=2), None, 100)
    >>> image.rank.tolist()
    [[0, -1, -1, -1], [1, 1, -1, -1], [1, 1, 1, -1], [0, 0, 0, 0]]
    >>> image.step[3].tolist(), image.owner_q.tolist()
    ([0, 1, 1, 0], [0, 1, 1, 0])
    """
    sides = []
    for layout in (plan.layout_q, plan.layout_k):
        starts = layout.cu_seqlens_padded.astype(np.int64)
        span = (0, layout.num_rows) if sequence is None else starts[[sequence, sequence + 1]]
        sides.append(Shown.of(int(span[0]), int(span[1]), pixels))
    q, k = sides
    rank = np.full((len(q.rows), len(k.rows)), NOBODY, np.int64)
    step = rank.copy()
    for number in range(plan.cp_size):
        for index, work in enumerate(plan.steps(number)):
            if work.heads[0] == 0 and work.heads[1] > 0:
                for tile in work.tiles:
                    if sequence is None or tile.q.seq == sequence:
                        _fill(plan, tile, (q, k), rank, step, (number, index))
    return Raster(q, k, rank, step, _owners(plan, "q", q), _owners(plan, "k", k))


def _rows(layout: _core.PackedLayout, segment: _core.Segment) -> Integers:
    start = int(layout.cu_seqlens_padded[segment.seq])
    return start + segment.pos + segment.stride * np.arange(segment.len, dtype=np.int64)


def _fill(
    plan: _core.Plan,
    tile: _core.Tile,
    shown: tuple[Shown, Shown],
    rank: Integers,
    step: Integers,
    who: tuple[int, int],
) -> None:
    line, i = shown[0].pixels_of(_rows(plan.layout_q, tile.q))
    column, j = shown[1].pixels_of(_rows(plan.layout_k, tile.k))
    lengths = int(plan.layout_q.lengths[tile.q.seq]), int(plan.layout_k.lengths[tile.k.seq])
    positions = (tile.q.pos + tile.q.stride * i).tolist()
    visible = [plan.mask.visible(position, *lengths) for position in positions]
    begin, end = np.array(visible, np.int64).reshape(-1, 2).T
    key = tile.k.pos + tile.k.stride * j
    there = (key >= begin[:, None]) & (key < end[:, None])
    cells = np.ix_(line, column)
    rank[cells] = np.where(there, who[0], rank[cells])
    step[cells] = np.where(there, who[1], step[cells])


def _owners(plan: _core.Plan, side: str, shown: Shown) -> Integers:
    layout = plan.layout_q if side == "q" else plan.layout_k
    owner = np.full(len(shown.rows), NOBODY, np.int64)
    for rank in range(plan.cp_size):
        for segment in plan.shards_q(rank) if side == "q" else plan.shards_k(rank):
            pixel, _ = shown.pixels_of(_rows(layout, segment))
            owner[pixel] = rank
    starts, lengths = layout.cu_seqlens_padded, layout.lengths
    document = np.searchsorted(starts, shown.rows, side="right") - 1
    padding = shown.rows - starts[document] >= lengths[document]
    return np.where(padding, PADDING, owner)
