"""How the answer of one row comes together: what each step adds, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringside._pictures.colours import INK, SEEN, Colours, ink_on, rgb
from ringside._pictures.figure import SMALL, plain
from ringside._pictures.timeline import whose

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ringside import _core


def ranks_words(owners: Sequence[int], cp_size: int) -> str:
    """Ranks, in words.

    >>> ranks_words((2,), 4), ranks_words((0, 2), 4), ranks_words((0, 1), 2)
    ('rank 2', 'ranks 0, 2', 'all ranks')
    """
    if len(owners) == 1:
        return f"rank {owners[0]}"
    if len(owners) == cp_size:
        return "all ranks"
    return f"ranks {whose(owners, cp_size)}" if len(owners) <= 3 else f"{len(owners)} ranks"


def paint_story(axis: Axes, plan: _core.Plan, parts: Sequence[Any], colours: Colours) -> None:
    """What each step adds to one answer, one after the other, in the colour of the keys' owner."""
    begins = np.concatenate([[0], np.cumsum([part.share for part in parts])])
    for begin, part in zip(begins.tolist(), parts, strict=False):
        alone = len(part.owners) == 1
        shade = colours[part.owners[0]] if alone else rgb(SEEN)
        axis.barh(
            *(part.step, part.share, 0.7),
            left=begin,
            color=[tuple(shade.tolist())],
            edgecolor=INK,
            linewidth=0.4,
        )
        words = f"keys of {ranks_words(part.owners, plan.cp_size)}: {part.share:.1%}"
        inside = begin + part.share / 2 > 0.6 or part.share > 0.4
        at = (begin + part.share / 2, "center") if part.share > 0.4 else None
        at = at or ((begin - 0.01, "right") if inside else (begin + part.share + 0.01, "left"))
        ink = ink_on(shade) if part.share > 0.4 else "black"
        axis.text(at[0], part.step, words, fontsize=SMALL, ha=at[1], va="center", color=ink)
    axis.set(xlim=(0, 1), ylim=(max(plan.num_steps, 1) - 0.5, -0.5), ylabel="step")
    axis.set(xlabel="share of the answer")
    axis.set_yticks(range(plan.num_steps))
    axis.xaxis.set_major_formatter("{x:.0%}")
    plain(axis)
