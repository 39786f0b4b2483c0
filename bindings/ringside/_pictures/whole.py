"""The whole picture of a plan: which axes stand where, and whether verify() accepts the plan."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ringside._pictures import layout as of_layout
from ringside._pictures import mask as of_mask
from ringside._pictures import timeline as of_time
from ringside._pictures.colours import rank_colours
from ringside._pictures.figure import NORMAL, SMALL, Path, new_figure, proof_of, saved, say
from ringside._pictures.mask import Mark
from ringside._pictures.raster import EXACT, PIXELS, raster, tokens_of
from ringside._pictures.work import paint_work
from ringside._words import count, mask_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import _core

LINE = 120  # small letters that stand beside each other
MANY_RANKS = 16  # more have colours that no eye tells apart: rank x owner instead of a mask
_HEIGHTS = {"strip": 0.42, "heads": 1.1}  # inches; of others 3.5
WHO = "who computes a pair: a colour a rank, later steps lighter; strips: whose rows"


def heading(plan: _core.Plan) -> str:
    """What a plan is, in a line."""
    layout = plan.layout_q
    return (
        f"{plan.partition} over {plan.comm}, {count(plan.cp_size, 'rank')}, "
        f"{mask_words(plan.mask)}: {count(layout.num_sequences, 'document')}, "
        f"{count(layout.num_tokens, 'token')}"
    )


def shown_of_large(plan: _core.Plan, mark: Mark | None) -> int | None:
    """Of a pack that is too long to be shown, its longest document, or that of a mark; else None.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 900, 3000]), cp_size=2)
    >>> shown_of_large(plan, None), shown_of_large(plan, Mark(5, None))
    (1, 0)
    """
    if max(plan.layout_q.num_rows, plan.layout_k.num_rows) <= EXACT:
        return None
    if mark is not None and mark.row is not None:
        return int(tokens_of(plan.layout_q, np.array([mark.row]))[0][0])
    return int(np.argmax(plan.layout_q.lengths))


def is_of_heads(plan: _core.Plan) -> bool:
    return plan.comm.startswith("a2a") and plan.num_heads > 1


def draw(plan: _core.Plan, path: Path) -> Figure:
    """See Plan.draw."""
    proof, refusal = proof_of(plan)
    mark = None if refusal is None else Mark(refusal.row, refusal.key)
    large = shown_of_large(plan, mark)
    parts, ratios = _parts(plan, large)
    heights = [_HEIGHTS.get(row[-1], 3.5) for row in parts]
    heights[-1] = max(3.5, 0.3 * min(plan.cp_size, MANY_RANKS), 0.08 * min(plan.cp_size, 64))
    figure = new_figure(sum(heights) + 0.75 + 0.35 * len(heights))
    grid = {"width_ratios": ratios, "height_ratios": heights}
    axes: dict[str, Any] = figure.subplot_mosaic(parts, gridspec_kw=grid)
    figure.suptitle(heading(plan), fontsize=NORMAL)
    figure.supxlabel(textwrap.fill(proof, LINE), fontsize=SMALL)
    colours = rank_colours(plan.cp_size)
    for name, axis in axes.items():
        _PAINT[name](axis, plan, colours, large, mark)
    return saved(figure, path)


def _parts(plan: _core.Plan, large: int | None) -> tuple[Any, list[float]]:
    """Which axes stand where, and how wide they are."""
    many = plan.cp_size > MANY_RANKS
    rows = [["strip", "strip"]] if large is not None else []
    rows += [["heads", "heads"]] if is_of_heads(plan) else []
    if many:
        return [*rows, ["work", "time"]], [1, 1]
    if large is not None:
        return [*rows, ["mask", "work"], ["time", "time"]], [1, 1]
    return [*rows, ["mask", "time"]], [1, 1.05]


def _strip(axis: Axes, plan: _core.Plan, _: Any, large: int | None, mark: Any) -> None:
    layout = plan.layout_q
    of_layout.paint_documents(axis, layout, large)
    axis.set_xlabel("")
    length = int(layout.lengths[large or 0])
    below = "" if plan.cp_size > MANY_RANKS else " (dark) is shown below"
    which = "its longest" if mark is None else "where it is refused"
    say(axis, f"the pack; document {large}, {which}, of {length:,} tokens{below}", width=7.6)


def _mask(axis: Axes, plan: _core.Plan, colours: Any, large: int | None, mark: Any) -> None:
    image = raster(plan, large, PIXELS)
    of_mask.paint_plan(axis, plan, image, colours)
    if mark is not None:
        of_mask.paint_mark(axis, mark, (image.q, image.k))
    say(axis, (f"of head 0, {WHO}" if is_of_heads(plan) else WHO), width=3.6)


def _time(axis: Axes, plan: _core.Plan, colours: Any, large: int | None, _: Any) -> None:
    times = of_time.counted(plan)
    of_time.paint_times(axis, plan, times, colours)
    wide = large is not None and plan.cp_size <= MANY_RANKS
    say(axis, *of_time.title_of(times, plan.cp_size), width=7.6 if wide else 3.7)


def _work(axis: Axes, plan: _core.Plan, colours: Any, *_: Any) -> None:
    say(axis, paint_work(axis, plan, colours), width=3.6)


def _heads(axis: Axes, plan: _core.Plan, colours: Any, *_: Any) -> None:
    of_layout.paint_heads(axis, plan, colours)
    axis.set_xlabel("")
    say(axis, "who computes which head of a query: all ranks do alike, for other heads", width=7.6)


_PAINT: dict[str, Any] = {
    "strip": _strip,
    "mask": _mask,
    "time": _time,
    "work": _work,
    "heads": _heads,
}
