"""Rank x owner: how much each rank computes with whose keys. Tells any number of ranks apart."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ringside._pictures.colours import INK, Colours, rgb
from ringside._pictures.figure import plain
from ringside._pictures.mask import write
from ringside._pictures.raster import Integers
from ringside._pictures.tables import records, tiles_of
from ringside._pictures.timeline import FEW_ROWS, owners_by_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ringside import _core

DARKEST = "#2B2E36"
NUMBERED = 8  # ranks up to which cells hold numbers


def work_by_owner(plan: _core.Plan) -> tuple[Integers, str]:
    """([ranks, owners] counts, their unit).

    Where a rank has one owner's keys at a time: blocks of 128 x 128, or, in packs of up to 1,024
    rows, pairs. Where it has several owners' in one buffer, pairs: a block may span two of them.

    >>> import ringside as rs
    >>> work_by_owner(rs.plan(rs.PackedLayout([0, 8]), cp_size=2))[0].tolist()
    [[10, 8], [8, 10]]
    """
    owners = owners_by_step(plan)
    cost = plan.cost()
    busy = np.argwhere(cost.pairs > 0).tolist()
    work = np.zeros((plan.cp_size, plan.cp_size), np.int64)
    if any(len(owners[rank][step]) != 1 for rank, step in busy):
        return _pairs_by_owner(plan, work), "pairs"
    in_pairs = max(plan.layout_q.num_rows, plan.layout_k.num_rows) <= FEW_ROWS
    for rank, step in busy:
        count = (cost.pairs if in_pairs else cost.blocks)[rank, step]
        work[rank, owners[rank][step][0]] += count
    return work, "pairs" if in_pairs else "blocks of 128 x 128"


def _pairs_by_owner(plan: _core.Plan, work: Integers) -> Integers:
    """From the tiles: how many queries see each key, and whose that is."""
    layout = plan.layout_k
    owner = np.zeros(layout.num_rows, np.int64)
    for rank in range(plan.cp_size):
        owner[plan.row_indices(rank, side="k")] = rank
    starts = layout.cu_seqlens_padded.astype(np.int64)
    lengths = plan.layout_q.lengths, layout.lengths
    for begin, end in head_classes(plan):
        for tile in tiles_of(plan, begin):
            seq = int(tile["seq"])
            seen = _times_seen(plan.mask, tile, int(lengths[0][seq]), int(lengths[1][seq]))
            rows = starts[seq] + tile["k_pos"] + tile["k_stride"] * np.arange(tile["k_len"])
            pairs = np.bincount(owner[rows], seen, minlength=plan.cp_size)
            work[tile["rank"]] += pairs.astype(np.int64) * (end - begin)
    return work


def head_classes(plan: _core.Plan) -> list[tuple[int, int]]:
    """Ranges of query heads that the same ranks compute by the same tiles.

    >>> import ringside as rs
    >>> head_classes(rs.plan(rs.PackedLayout([0, 4]), cp_size=2, comm="a2a", num_heads=6))
    [(0, 3), (3, 6)]
    """
    steps = records(plan, "steps")
    cuts = np.concatenate([steps["q_head_begin"], steps["q_head_end"], [0, plan.num_heads]])
    edges = np.unique(cuts).tolist()
    return list(pairwise(edges))


def _times_seen(mask: _core.Mask, tile: Any, len_q: int, len_k: int) -> Any:
    """[rows of the tile's keys] how many of its queries see each: ends of intervals, summed up."""
    queries = tile["q_pos"] + tile["q_stride"] * np.arange(tile["q_len"])
    begin, end = mask._visible(queries.astype(np.int32), len_q, len_k)
    rows = [
        np.clip(-(-(edge.astype(np.int64) - tile["k_pos"]) // tile["k_stride"]), 0, tile["k_len"])
        for edge in (begin, end)
    ]
    size = int(tile["k_len"]) + 1
    opened, closed = (np.bincount(x, minlength=size) for x in rows)
    return np.cumsum(opened - closed)[:-1]


def paint_work(axis: Axes, plan: _core.Plan, colours: Colours) -> str:
    """Darker cells are more work; strips: who computes, and whose keys. Returns a title."""
    work, unit = work_by_owner(plan)
    most, ranks = max(int(work.max(initial=0)), 1), plan.cp_size
    shade = (work / most)[..., None]
    axis.imshow(
        rgb("#FFFFFF") * (1 - shade) + rgb(DARKEST) * shade,
        extent=(0, ranks, ranks, 0),
        interpolation="nearest",
        aspect="auto",
    )
    strip = ranks * 0.05
    extents = ((-strip, 0, ranks, 0), (0, ranks, 0, -strip))
    for pixels, extent in zip((colours[:, None], colours[None]), extents, strict=True):
        axis.imshow(pixels, extent=extent, interpolation="nearest", aspect="auto")
    axis.set(xlim=(-strip, ranks), ylim=(ranks, -strip), box_aspect=1, anchor="N")
    axis.set(xlabel="whose keys (rank)", ylabel="who computes (rank)")
    every = 1 if ranks <= 16 else -(-ranks // 8)
    numbers = np.arange(0, ranks, every)
    axis.set_xticks(numbers + 0.5, [str(i) for i in numbers])
    axis.set_yticks(numbers + 0.5, [str(i) for i in numbers])
    plain(axis)
    if ranks <= NUMBERED:
        for (rank, owner), count in np.ndenumerate(work):
            ground = 1 - (1 - rgb(DARKEST)) * (count / most)
            write(axis, (owner + 0.5, rank + 0.5), _short(int(count)), ground)
    else:
        axis.hlines(np.arange(1, ranks), 0, ranks, color=INK, linewidth=0.1 if ranks > 32 else 0.3)
        axis.vlines(np.arange(1, ranks), 0, ranks, color=INK, linewidth=0.1 if ranks > 32 else 0.3)
    return f"work by owner of the keys: {unit}; white 0, darkest {most:,}"


def _short(number: int) -> str:
    """In at most four letters.

    >>> _short(900), _short(1_650), _short(45_600), _short(7_800_000), _short(43_900_000)
    ('900', '1.6k', '46k', '7.8M', '44M')
    """
    for size, letter in ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")):
        if number < 999.5 * size:
            digits = 1 if letter and number < 9.95 * size else 0
            return f"{number / size:.{digits}f}{letter}"
    return f"{number:.0e}"
