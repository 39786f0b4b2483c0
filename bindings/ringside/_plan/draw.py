"""A plan as a picture: who computes which pair, whose rows they are, and when each rank works.

A colour is a rank, everywhere; the later the step, the lighter. On the left the mask, with strips
that say whose query rows and whose keys these are: the whole pack, or, of packs of more rows than
EXACT, the longest document. On the right each rank's time: a bar a step, as long as what a kernel
computes in it; where transports wait for each other, a step begins when all have ended the last.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._extras import extra
from ringside._plan.explain import count, mask_words
from ringside._plan.raster import PADDING, Raster, raster

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import _core

EXACT, PIXELS = 2048, 1024  # rows of a pack that is shown whole; pixels a side
FEW_ROWS = 1024  # of packs whose work is told in pairs: one block of a kernel would hold much of it
SMALL, NORMAL = 8, 9.5  # points: 11 pixels where the picture is 840 wide
LIGHTEST = 0.6  # how much white the last step holds
# Paul Tol's qualitative schemes "bright" and "muted", safe for colour-blind readers; ranks beyond
# them take hues from a circle.
COLOURS = (
    *("#4477AA", "#EE6677", "#CCBB44", "#228833"),
    *("#66CCEE", "#AA3377", "#332288", "#999933"),
)
UNSEEN, HIDDEN, INK = "#FFFFFF", "#D5D8DE", "#5A5F6A"
Colours = npt.NDArray[np.float64]


def draw(plan: _core.Plan, path: str | os.PathLike[str] | None) -> Figure:
    """See Plan.draw."""
    with extra("plot", "Plan.draw"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    rows = max(plan.layout_q.num_rows, plan.layout_k.num_rows)
    sequence = int(np.argmax(plan.layout_q.lengths)) if rows > EXACT else None
    height = 4.3 + (0.55 if sequence is not None else 0) + 0.09 * max(0, min(plan.cp_size, 80) - 12)
    figure = Figure(figsize=(8.4, height), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(plan), fontsize=NORMAL + 0.5)
    colours = rank_colours(plan.cp_size)
    parts = [["strip", "strip"], ["mask", "time"]] if sequence is not None else [["mask", "time"]]
    ratios = {"height_ratios": [0.5, 7]} if sequence is not None else {}
    axes = figure.subplot_mosaic(parts, gridspec_kw={"width_ratios": [1.05, 1], **ratios})
    if sequence is not None:
        _draw_lengths(axes["strip"], plan, sequence)
    _draw_mask(axes["mask"], plan, raster(plan, sequence, PIXELS), colours, sequence)
    _draw_time(axes["time"], plan, colours, in_pairs=rows <= FEW_ROWS)
    if path is not None:
        figure.savefig(path)
    return figure


def rank_colours(cp_size: int) -> Colours:
    """[cp_size, 3] RGB.

    >>> rank_colours(3).shape, len(np.unique(rank_colours(64), axis=0))
    ((3, 3), 64)
    """
    from matplotlib.colors import hsv_to_rgb, to_rgb

    if cp_size <= len(COLOURS):
        return np.array([to_rgb(colour) for colour in COLOURS[:cp_size]]).reshape(-1, 3)
    ranks = np.arange(cp_size)
    hue, value = ranks / cp_size, np.where(ranks % 2, 0.6, 0.85)
    return np.asarray(hsv_to_rgb(np.stack([hue, np.full(cp_size, 0.75), value], axis=1)))


def lightened(colours: Colours, step: Any, num_steps: int) -> Colours:
    """The colours as of a step: the first one full, the last one lightest."""
    white = LIGHTEST * np.asarray(step) / max(num_steps - 1, 1)
    return colours + (1 - colours) * white[..., None]


def _title(plan: _core.Plan) -> str:
    layout = plan.layout_q
    return (
        f"{plan.partition} over {plan.comm}, {count(plan.cp_size, 'rank')}, "
        f"{mask_words(plan.mask)}: {count(layout.num_sequences, 'document')}, "
        f"{count(layout.num_tokens, 'token')}"
    )


def _plain(axis: Axes) -> None:
    axis.tick_params(labelsize=SMALL, length=2, color=INK)
    axis.spines[:].set(color=INK, linewidth=0.6)


def _draw_lengths(axis: Axes, plan: _core.Plan, sequence: int) -> None:
    """All documents of the pack, side by side; the one that is shown below is filled."""
    layout = plan.layout_q
    starts, lengths = layout.cu_seqlens_padded[:-1], layout.lengths
    fills = [INK if i == sequence else UNSEEN for i in range(len(lengths))]
    axis.bar(starts, 1, lengths, align="edge", color=fills, edgecolor=INK, linewidth=0.4)
    axis.set(xlim=(0, layout.num_rows), ylim=(0, 1), yticks=[], xticks=[0, layout.num_rows])
    axis.set_title(
        f"the pack; below, document {sequence}, its longest ({int(lengths[sequence]):,} tokens)",
        fontsize=SMALL,
    )
    _plain(axis)
    axis.set_xticklabels(["0", f"{layout.num_rows:,} rows"])


def _draw_mask(
    axis: Axes, plan: _core.Plan, image: Raster, colours: Colours, sequence: int | None
) -> None:
    from matplotlib.colors import to_rgb

    q, k = image.q, image.k
    extent = (k.begin, max(k.end, k.begin + 1), max(q.end, q.begin + 1), q.begin)
    height, width = (extent[2] - extent[3]) * 0.045, (extent[1] - extent[0]) * 0.045
    num_steps = max(len(plan.steps(rank)) for rank in range(plan.cp_size))
    if image.rank.size:
        shade = lightened(colours[image.rank], image.step, num_steps)
        pixels = np.where((image.rank >= 0)[..., None], shade, to_rgb(UNSEEN))
        dead = (image.owner_q == PADDING)[:, None] | (image.owner_k == PADDING)
        pixels = np.where(dead[..., None], to_rgb(HIDDEN), pixels)
        axis.imshow(pixels, extent=extent, interpolation="nearest")
        _draw_owners(axis, image, colours, (width, height))
    if sequence is None:
        for layout, line in ((plan.layout_k, axis.axvline), (plan.layout_q, axis.axhline)):
            for start in layout.cu_seqlens_padded[1:-1].tolist() if _is_roomy(plan) else []:
                line(start, color=INK, linewidth=0.4)
    axis.set(
        xlim=(extent[0] - width, extent[1]),
        ylim=(extent[2], extent[3] - height),
        box_aspect=1,
        aspect="auto",
        anchor="N",
        xticks=[extent[0], extent[1]],
        yticks=[extent[3], extent[2]],
    )
    head = " of head 0" if plan.num_heads > 1 and plan.comm.startswith("a2a") else ""
    axis.set_title(
        f"who computes a pair{head}: a colour a rank, later steps lighter", fontsize=SMALL
    )
    axis.set_xlabel("key (token)", fontsize=SMALL)
    axis.set_ylabel("query (token)", fontsize=SMALL)
    _plain(axis)


def _is_roomy(plan: _core.Plan) -> bool:
    return bool(plan.layout_q.num_sequences <= 40)


def _draw_owners(axis: Axes, image: Raster, colours: Colours, size: tuple[float, float]) -> None:
    """Strips beside the mask, with the numbers of the ranks where there is room for them."""
    from matplotlib.colors import to_rgb

    shades = np.concatenate([colours, [to_rgb(HIDDEN), to_rgb(UNSEEN)]])  # [-2], [-1]
    q, k = image.q, image.k
    left = (k.begin - size[0], k.begin, q.end, q.begin)
    top = (k.begin, k.end, q.begin, q.begin - size[1])
    axis.imshow(shades[image.owner_q][:, None], extent=left, interpolation="nearest", zorder=3)
    axis.imshow(shades[image.owner_k][None], extent=top, interpolation="nearest", zorder=3)
    for owners, shown, is_q in ((image.owner_q, q, True), (image.owner_k, k, False)):
        edges = np.concatenate([[0], np.nonzero(np.diff(owners))[0] + 1, [len(owners)]])
        for begin, end in pairwise(edges.tolist()):
            room = 0.035 if owners[begin] < 10 else 0.05
            if end - begin >= room * len(owners) and owners[begin] >= 0:
                middle = shown.begin + (begin + end) / 2 * (shown.end - shown.begin) / len(owners)
                beside = (k.begin - size[0] / 2) if is_q else (q.begin - size[1] / 2)
                at = (beside, middle) if is_q else (middle, beside)
                _number(axis, at, int(owners[begin]), colours)


def _number(axis: Axes, at: tuple[float, float], rank: int, colours: Colours) -> None:
    dark = colours[rank] @ [0.299, 0.587, 0.114] < 0.55
    ink = "white" if dark else "black"
    axis.text(*at, str(rank), color=ink, fontsize=SMALL, ha="center", va="center", zorder=4)


def _draw_time(axis: Axes, plan: _core.Plan, colours: Colours, *, in_pairs: bool) -> None:
    """Each rank's steps as bars, one behind the other."""
    cost = plan.cost()
    work = np.asarray(cost.pairs if in_pairs else cost.blocks, float)
    ranks, num_steps = work.shape
    busiest = work.max(axis=0, initial=0)
    begin = np.broadcast_to(np.concatenate([[0], np.cumsum(busiest)])[:-1], work.shape)
    for step in range(num_steps):
        shade = lightened(colours, step, num_steps)
        axis.barh(
            np.arange(ranks), work[:, step], 0.78, left=begin[:, step], color=shade, linewidth=0
        )
        if 0 < step < 40:
            axis.axvline(begin[0, step], color=INK, linewidth=0.3)
    total = work.sum()
    axis.axvline(total / max(ranks, 1), color=INK, linestyle=":", linewidth=1)
    axis.set(
        ylim=(ranks - 0.5, -0.5),
        xlim=(0, max(busiest.sum(), 1) * 1.02),
        yticks=np.arange(0, ranks, 1 if ranks <= 40 else -(-ranks // 20)),
    )
    unit = "pairs" if in_pairs else "blocks of 128 x 128"
    axis.set_title(
        f"when each rank works: {unit}, step after step\n"
        f"{busiest.sum() * ranks / max(total, 1):.2f} x the ideal (dotted); "
        f"imbalance of pairs {cost.imbalance:.2f}, fill {cost.fill:.2f}",
        fontsize=SMALL,
    )
    axis.set_xlabel(f"{unit}, all heads", fontsize=SMALL)
    axis.set_ylabel("rank", fontsize=SMALL)
    _plain(axis)
