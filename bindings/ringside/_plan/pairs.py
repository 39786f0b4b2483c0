"""Which pairs a rank computes in which step, as images over global rows.

One pixel a pair, or averaged. They come from the tiles and Mask.visible alone, as a kernel would
read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringside._rows import valid_rows

if TYPE_CHECKING:
    from ringside import _core

Image = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Keys:
    """Rows of one sequence in a tile: their positions, and the global row of position 0."""

    first_row: int
    pos: int
    stride: int
    len: int


@dataclass(frozen=True)
class _Block:
    """A tile in global terms; query i sees keys [begin[i], end[i]) of the tile's keys."""

    q_rows: Integers
    keys: _Keys
    begin: Integers
    end: Integers


class Pairs:
    """The visible pairs of a plan."""

    def __init__(self, plan: _core.Plan) -> None:
        self.plan = plan
        self.rows_q, self.rows_k = plan.layout_q.num_rows, plan.layout_k.num_rows
        self._starts_q = plan.layout_q.cu_seqlens_padded.astype(np.int64)
        self._starts_k = plan.layout_k.cu_seqlens_padded.astype(np.int64)
        self._visible = [self._visible_of(seq) for seq in range(plan.layout_q.num_sequences)]

    def step_image(self, rank: int) -> npt.NDArray[np.int16]:
        """[rows_q, rows_k]: the step in which the rank computes a pair; -1 where it does not.

        >>> import ringside as rs
        >>> Pairs(rs.plan(rs.PackedLayout([0, 4]), cp_size=2)).step_image(0).tolist()
        [[0, -1, -1, -1], [-1, -1, -1, -1], [-1, -1, -1, -1], [0, 1, 1, 0]]
        """
        image = np.full((self.rows_q, self.rows_k), -1, np.int16)
        for number, step in enumerate(self.plan.steps(rank)):
            for block in self._blocks(step):
                i = np.arange(block.keys.len)
                row, key = np.nonzero((i >= block.begin[:, None]) & (i < block.end[:, None]))
                column = block.keys.first_row + block.keys.pos + block.keys.stride * i[key]
                image[block.q_rows[row], column] = number
        return image

    def coverage(self, rank: int, shape: tuple[int, int]) -> Image:
        """[steps, *shape]: the share of each pixel's pairs that the rank computes in each step."""
        steps = self.plan.steps(rank)
        return np.stack([self._average(self._blocks(step), shape) for step in steps])

    def visible_coverage(self, shape: tuple[int, int]) -> Image:
        """[*shape]: the share of each pixel's pairs that the mask shows to anybody."""
        return self._average(self._sequences(), shape)

    def padding_coverage(self, shape: tuple[int, int]) -> Image:
        """[*shape]: the share of each pixel that lies in a row or a column of padding."""
        held = []
        for layout, pixels in zip((self.plan.layout_q, self.plan.layout_k), shape, strict=True):
            pixel = np.arange(layout.num_rows) * pixels // layout.num_rows
            valid = np.bincount(pixel, weights=valid_rows(layout), minlength=pixels)
            held.append(valid / np.bincount(pixel, minlength=pixels))
        return 1 - np.outer(*held)

    def _visible_of(self, seq: int) -> Integers:
        """[rows, 2]: the keys that each query of a sequence sees, padding included."""
        len_q, len_k = int(self.plan.layout_q.lengths[seq]), int(self.plan.layout_k.lengths[seq])
        rows = int(self._starts_q[seq + 1] - self._starts_q[seq])
        visible = [self.plan.mask.visible(q, len_q, len_k) for q in range(rows)]
        return np.array(visible, np.int64).reshape(rows, 2)

    def _block(self, seq: int, positions: Integers, keys: _Keys) -> _Block:
        visible = np.clip(-((keys.pos - self._visible[seq][positions]) // keys.stride), 0, keys.len)
        return _Block(self._starts_q[seq] + positions, keys, visible[:, 0], visible[:, 1])

    def _blocks(self, step: _core.Step) -> Iterator[_Block]:
        for tile in step.tiles:
            first_row = int(self._starts_k[tile.k.seq])
            keys = _Keys(first_row, tile.k.pos, tile.k.stride, tile.k.len)
            positions = tile.q.pos + tile.q.stride * np.arange(tile.q.len)
            yield self._block(tile.q.seq, positions, keys)

    def _sequences(self) -> Iterator[_Block]:
        for seq, visible in enumerate(self._visible):
            keys = _Keys(int(self._starts_k[seq]), 0, 1, int(self.plan.layout_k.lengths[seq]))
            yield self._block(seq, np.arange(len(visible)), keys)

    def _average(self, blocks: Iterator[_Block], shape: tuple[int, int]) -> Image:
        """Every row of a block is one run of keys: it goes in as two edges, a sum fills it."""
        lines, columns = shape
        edges = np.zeros(lines * (columns + 2))
        for block in blocks:
            seen = block.end > block.begin
            number = (block.end - block.begin)[seen]
            start = block.keys.first_row + block.keys.pos + block.keys.stride * block.begin[seen]
            span = (number - 1) * block.keys.stride + 1
            line = block.q_rows[seen] * lines // self.rows_q
            for at, sign in ((start, 1.0), (start + span, -1.0)):
                where = at * (columns / self.rows_k)
                pixel = where.astype(np.int64)
                inside = (pixel + 1 - where) * sign * number / span
                cell = line * (columns + 2) + pixel
                np.add.at(edges, cell, inside)
                np.add.at(edges, cell + 1, sign * number / span - inside)
        rows_of_line = np.bincount(np.arange(self.rows_q) * lines // self.rows_q, minlength=lines)
        filled = edges.reshape(lines, columns + 2)[:, :columns].cumsum(axis=1)
        return np.clip(filled / np.maximum(rows_of_line, 1)[:, None], 0.0, 1.0)
