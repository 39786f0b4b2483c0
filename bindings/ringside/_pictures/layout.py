"""Packs without a mask: their documents, whose rows they are, which rank computes which head."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringside._pictures.colours import INK, PADDED, SEEN, UNSEEN, Colours, rgb
from ringside._pictures.figure import LETTER, paint_boxes, plain, size_of
from ringside._pictures.mask import CELLS, runs_of, write
from ringside._pictures.raster import NOBODY, PADDING, Integers, Shown, owners_of, tokens_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ringside import _core

PIXELS = 2048
PALE = "#BDC3CC"
SINGLE = 64  # rows up to which each is told


def paint_documents(
    axis: Axes, layout: _core.PackedLayout, chosen: int | None = None, width: float = 7.6
) -> None:
    """Documents side by side, padding hatched; numbers where there is room for them.

    Args:
        chosen: a document to fill; default none.
        width: of the axis in inches.
    """
    starts, lengths = layout.cu_seqlens_padded[:-1].astype(np.int64), layout.lengths
    rows = max(layout.num_rows, 1)
    axis.set(xlim=(0, rows), ylim=(0, 1), yticks=[], xlabel="row of the pack")
    axis.axvspan(0, layout.num_rows, facecolor=UNSEEN, edgecolor=SEEN, hatch="////", linewidth=0)
    grounds = np.array([rgb(PALE), rgb(SEEN)])[np.arange(len(starts)) % 2]
    if chosen is not None:
        grounds[chosen : chosen + 1] = rgb(INK)
    boxed = _documents_of_boxes(layout, chosen)
    if len(boxed) < len(starts):
        _paint_sampled(axis, layout, grounds)
    ends = np.stack([starts, starts + lengths], axis=1)[boxed]
    spans = np.concatenate([ends, np.tile([0.0, 1.0], (len(boxed), 1))], axis=1)
    line = 0.5 if len(starts) <= 256 else 0.0
    paint_boxes(axis, "documents", spans, grounds[boxed], INK, line)
    for number in np.flatnonzero(lengths * width > LETTER * rows).tolist():
        start, length = int(starts[number]), int(lengths[number])
        _name(axis, number, start, length, length / rows * width, grounds[number])
    if layout.num_rows <= SINGLE:
        axis.vlines(np.arange(1, layout.num_rows), 0, 1, color=UNSEEN, linewidth=0.4)
    ticks = [0, rows] if rows > CELLS else np.unique(layout.cu_seqlens_padded).tolist()
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    plain(axis)


def _documents_of_boxes(layout: _core.PackedLayout, chosen: int | None) -> Integers:
    """Which get a box each: all of few; of more than there are pixels, the chosen one."""
    if layout.num_sequences <= PIXELS:
        return np.arange(layout.num_sequences)
    return np.array([] if chosen is None else [chosen], np.int64)


def _paint_sampled(axis: Axes, layout: _core.PackedLayout, grounds: Colours) -> None:
    """A pixel for one row of many, in the colour of its document; none of padding."""
    shown = Shown.of(0, layout.num_rows, PIXELS)
    document, _, is_token = tokens_of(layout, shown.rows)
    pixels = np.zeros((1, len(shown.rows), 4))
    pixels[0, is_token] = np.append(grounds, np.ones((len(grounds), 1)), axis=1)[document[is_token]]
    if pixels.size:
        extent = (0, layout.num_rows, 1, 0)
        axis.imshow(pixels, extent=extent, interpolation="nearest", aspect="auto")
        axis.set(xlim=(0, layout.num_rows), ylim=(0, 1))


def _name(axis: Axes, number: int, start: int, length: int, inches: float, ground: Colours) -> None:
    for text in (f"document {number}: {length:,}", f"{number}: {length:,}", str(number)):
        if len(text) * LETTER + 0.05 <= inches:
            write(axis, (start + length / 2, 0.5), text, ground, va="center")
            return


def paint_lengths(axis: Axes, layout: _core.PackedLayout) -> None:
    """Documents by length, the longest first."""
    lengths = np.sort(layout.lengths)[::-1]
    axis.fill_between(np.arange(len(lengths)), lengths, step="mid", color=SEEN, linewidth=0)
    axis.set(xlabel="documents, longest first", ylabel="tokens", ylim=(0, None))
    axis.set(xlim=(-0.5, max(len(lengths) - 0.5, 0.5)))
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.locator_params(axis="x", integer=True)
    plain(axis)


def paint_shards(axis: Axes, plan: _core.Plan, side: str, colours: Colours) -> None:
    """A line a rank: the rows of the pack that it owns, padding in grey."""
    layout = plan.layout_q if side == "q" else plan.layout_k
    shown = Shown.of(0, layout.num_rows, PIXELS)
    owner = owners_of(plan, side, shown)
    _paint_lines(axis, np.tile(owner, (plan.cp_size, 1)), shown, colours)
    if layout.num_sequences <= 40:
        for start in np.unique(layout.cu_seqlens_padded)[1:-1].tolist():
            axis.axvline(start, color=INK, linewidth=0.5)
    axis.set(xlabel=f"{'query' if side == 'q' else 'key'} (token, in the order of the pack)")
    axis.set(ylabel="rank")
    _number_lines(axis, plan.cp_size)


def _paint_lines(axis: Axes, owner: Integers, shown: Shown, colours: Colours) -> None:
    """Line i: where owner is i, in its colour."""
    ranks = len(owner)
    own = owner == np.arange(ranks)[:, None]
    pixels = np.where(own[..., None], colours[:, None], rgb(UNSEEN))
    pixels = np.where((owner == PADDING)[..., None], rgb(PADDED), pixels)
    right = max(shown.end, 1)
    if pixels.size:
        axis.imshow(
            pixels, extent=(0, right, ranks, 0), interpolation="nearest", aspect="auto", zorder=0
        )
    axis.hlines(np.arange(1, ranks), 0, right, color=INK, linewidth=0.3)
    axis.set(xlim=(0, right), ylim=(ranks, 0))
    axis.set_xticks([0, right], ["0", f"{right:,}"])


def _number_lines(axis: Axes, lines: int) -> None:
    room = size_of(axis)[1] / 0.19
    numbers = np.arange(0, lines, max(1, -(-lines // max(int(room), 1))))
    axis.set_yticks(numbers + 0.5, [str(i) for i in numbers])
    plain(axis)


def rank_of_heads(plan: _core.Plan, shown: Shown) -> Integers:
    """[query heads, pixels] the rank that computes a row's head; PADDING, NOBODY.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2, comm="a2a", num_heads=2)
    >>> rank_of_heads(plan, Shown.of(0, 4, 9)).tolist()
    [[0, 0, 0, 0], [1, 1, 1, 1]]
    """
    layout = plan.layout_q
    starts = layout.cu_seqlens_padded
    found = np.full((plan.num_heads, layout.num_rows), NOBODY, np.int64)
    for rank in range(plan.cp_size):
        for step in plan.steps(rank)[-1:]:  # queries stay where the first exchange has put them
            for segment in step.q:
                rows = int(starts[segment.seq]) + segment.positions
                found[slice(*step.heads), rows] = rank
    is_token = tokens_of(layout, shown.rows)[2]
    return np.where(is_token, found[:, shown.rows], PADDING)


def paint_heads(axis: Axes, plan: _core.Plan, colours: Colours) -> None:
    """A line a head: who computes it, row by row."""
    shown = Shown.of(0, plan.layout_q.num_rows, PIXELS)
    ranks = rank_of_heads(plan, shown)
    right, heads = max(shown.end, 1), plan.num_heads
    shades = np.concatenate([colours, [rgb(PADDED), rgb(UNSEEN)]])  # [-2], [-1]
    if ranks.size:
        extent = (0, right, heads, 0)
        axis.imshow(shades[ranks], extent=extent, interpolation="nearest", aspect="auto")
    axis.set(xlim=(0, right), ylim=(heads, 0), xlabel="query (token)", ylabel="query head")
    axis.set_xticks([0, right], ["0", f"{right:,}"])
    _number_lines(axis, heads)
    tall = size_of(axis)[1]
    for first, end, line in _alike(ranks):
        for begin, behind, rank in runs_of(line):
            wide = (behind - begin) / len(line) * 3
            if rank >= 0 and wide > 0.5 and (end - first) / heads * tall > 0.16:
                middle = (begin + behind) / 2 / len(line) * right
                write(axis, (middle, (first + end) / 2), f"rank {rank}", colours[rank], va="center")


def _alike(lines: Integers) -> list[tuple[int, int, Integers]]:
    """Neighbouring lines that are the same, once."""
    if not len(lines):
        return []
    changes = np.nonzero((np.diff(lines, axis=0) != 0).any(axis=1))[0] + 1
    edges = [0, *changes.tolist(), len(lines)]
    return [(a, b, lines[a]) for a, b in pairwise(edges)]
