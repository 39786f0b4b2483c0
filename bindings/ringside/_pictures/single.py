"""Figures of one kind each: the mask, shards, times, work, heads, ranks or a story of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringside._core import Unsupported
from ringside._pictures import layout as of_layout
from ringside._pictures import mask as of_mask
from ringside._pictures import timeline as of_time
from ringside._pictures.checks import checked_head, checked_mark, checked_sequence
from ringside._pictures.colours import rank_colours
from ringside._pictures.figure import (
    NORMAL,
    SMALL,
    Path,
    axes_for,
    new_figure,
    proof_of,
    saved,
    say,
)
from ringside._pictures.mask import Mark
from ringside._pictures.raster import PIXELS, raster
from ringside._pictures.story import paint_story
from ringside._pictures.whole import MANY_RANKS, WHO, heading, is_of_heads
from ringside._pictures.work import paint_work
from ringside._words import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import _core


def draw_mask_of(
    plan: _core.Plan, path: Path, head: Any, sequence: Any, mark: Any, ax: Axes | None
) -> Figure:
    """See Plan.draw_mask."""
    head, mark = checked_head(plan, head), checked_mark(mark)
    sequence = checked_sequence(plan.layout_q, sequence)
    image = raster(plan, sequence, PIXELS, head)
    figure, axis = axes_for(ax, 1.6 + 3.4 * of_mask.aspect_of(image.q, image.k), 4.4)
    of_mask.paint_plan(axis, plan, image, rank_colours(plan.cp_size))
    proof, refusal = proof_of(plan)
    mark = mark or (refusal and Mark(refusal.row, refusal.key))
    if mark is not None:
        of_mask.paint_mark(axis, mark, (image.q, image.k))
    of = f"head {head}: " if is_of_heads(plan) else ""
    say(axis, *([] if ax is not None else [heading(plan)]), of + WHO, proof, width=_wide(ax, 3.6))
    return saved(figure, path)


def _wide(ax: Axes | None, width: float) -> float | None:
    return width if ax is None else None


def draw_shards(plan: _core.Plan, path: Path, ax: Axes | None) -> Figure:
    """See Plan.draw_shards."""
    colours = rank_colours(plan.cp_size)
    tall = 0.9 + 0.22 * min(plan.cp_size, 24)
    same = plan.layout_q == plan.layout_k and all(
        plan.shards_q(rank) == plan.shards_k(rank) for rank in range(plan.cp_size)
    )
    if ax is not None or same:
        figure, axis = axes_for(ax, tall)
        of_layout.paint_shards(axis, plan, "q", colours)
        say(axis, f"whose rows: {heading(plan)}", width=_wide(ax, 7.6))
        return saved(figure, path)
    figure = new_figure(2 * tall)
    for axis, side, words in zip(figure.subplots(2), "qk", ("query rows", "key rows"), strict=True):
        of_layout.paint_shards(axis, plan, side, colours)
        say(axis, f"whose {words}: {heading(plan)}", width=7.6)
    return saved(figure, path)


def draw_timeline(plan: _core.Plan, timeline: Any, path: Path, ax: Axes | None) -> Figure:
    """See Plan.draw_timeline."""
    times = of_time.counted(plan) if timeline is None else of_time.told(timeline, plan.cp_size)
    figure, axis = axes_for(ax, 1.4 + 0.34 * min(plan.cp_size, 20))
    of_time.paint_times(axis, plan, times, rank_colours(plan.cp_size))
    lines = of_time.title_of(times, plan.cp_size)
    say(axis, *([] if ax is not None else [heading(plan)]), *lines, width=_wide(ax, 7.6))
    return saved(figure, path)


def draw_work(plan: _core.Plan, path: Path, ax: Axes | None) -> Figure:
    """See Plan.draw_work."""
    figure, axis = axes_for(ax, 4.6, 4.4)
    title = paint_work(axis, plan, rank_colours(plan.cp_size))
    say(axis, *([] if ax is not None else [heading(plan)]), title, width=_wide(ax, 3.6))
    return saved(figure, path)


def draw_heads(plan: _core.Plan, path: Path, ax: Axes | None) -> Figure:
    """See Plan.draw_heads."""
    figure, axis = axes_for(ax, 1.2 + 0.2 * min(plan.num_heads, 24))
    of_layout.paint_heads(axis, plan, rank_colours(plan.cp_size))
    say(axis, f"who computes which head of a query: {heading(plan)}", width=_wide(ax, 7.6))
    return saved(figure, path)


def draw_ranks(plan: _core.Plan, path: Path, sequence: Any) -> Figure:
    """See Plan.draw_ranks."""
    sequence = checked_sequence(plan.layout_q, sequence)
    if is_of_heads(plan):
        return draw_heads(plan, path, None)  # its panels would all be alike
    if plan.cp_size > MANY_RANKS:
        raise Unsupported(
            f"a panel a rank of {plan.cp_size} ranks; nearest supported: up to {MANY_RANKS}, or "
            "plan.draw_work(), rank x owner"
        )
    across = min(plan.cp_size, 4)
    down = -(-plan.cp_size // across)
    figure = new_figure(0.55 + 1.95 * down)
    image, colours = raster(plan, sequence, PIXELS // 2), rank_colours(plan.cp_size)
    for rank, axis in enumerate(figure.subplots(down, across, squeeze=False).flat):
        if rank >= plan.cp_size:
            axis.axis("off")
            continue
        of_mask.paint_plan(axis, plan, image, colours, only=rank)
        axis.set(xlabel="", ylabel="")
        pairs = int(plan.cost().pairs[rank].sum())
        say(axis, f"rank {rank}: {pairs:,} pairs", width=1.9)
    figure.suptitle(heading(plan), fontsize=NORMAL)
    figure.supxlabel("key (token)", fontsize=SMALL)
    figure.supylabel("query (token)", fontsize=SMALL)
    return saved(figure, path)


def draw_story(plan: Any, row: Any, arrays: Any, head: Any, path: Path, ax: Axes | None) -> Figure:
    """See Plan.draw_story."""
    parts = plan.story(row, *arrays, head=head)
    figure, axis = axes_for(ax, 1.3 + 0.3 * min(plan.num_steps, 24), 6.4)
    paint_story(axis, plan, parts, rank_colours(plan.cp_size))
    keys = sum(part.keys for part in parts)
    title = f"how the answer of row {row} comes together: {count(keys, 'key')} in all"
    say(axis, title, width=_wide(ax, 5.6))
    return saved(figure, path)
