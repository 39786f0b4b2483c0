"""Pictures of a plan's steps: whose keys each rank holds, and how a row's answer grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument, Plan, Step
from ringside.learn.figures.paper import (
    EVEN,
    INK,
    NORMAL,
    SMALL,
    UNSEEN,
    WRONG,
    bare,
    paper,
    plain,
    rank_colours,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_RANKS, MAX_STEPS = 16, 32


def figure_of_story(
    plan: Plan, row: SupportsIndex, q: npt.ArrayLike | None = None, k: npt.ArrayLike | None = None
) -> Figure:
    """How the answer of one row grows: after each step, the share of its weights that is merged.

    Args:
        plan: of any partition and transport.
        row: of the pack's queries, one that sees a key.
        q, k: as of Plan.story; default: all keys weigh alike.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> figure = learn.figure_of_story(plan, 7)
    """
    parts = plan.story(row, q, k)  # type: ignore[attr-defined]  # of the plan that users hold
    if not parts:
        raise InvalidArgument(
            f"got row {row}, which is padding or sees no key; expected one with an answer. Pass it"
        )
    if len(parts) > MAX_STEPS:
        raise InvalidArgument(
            f"got a plan in which the row has {len(parts)} parts; expected at most {MAX_STEPS}. "
            "Pass one of fewer ranks"
        )
    colours = rank_colours(plan.cp_size)
    figure, axis = paper(8.4, 0.9 + 0.3 * len(parts))
    before = 0.0
    for place, part in enumerate(parts):
        axis.barh(place, before, 0.8, color="#E3E6EB")
        left = before
        for owner, share in _by_owner(part):
            axis.barh(place, share, 0.8, left=left, color=colours[owner])
            left += share
        before += part.share
        words = f"{100 * part.share:.1f} %, {part.keys:,} keys of rank {_ranks(part.owners)}"
        inside = before > 0.6
        axis.text(
            *(left - part.share - 0.01 if inside else before + 0.01, place, words),
            ha="right" if inside else "left",
            va="center",
            fontsize=SMALL,
            color=INK,
        )
    plain(axis, f"row {row}, computed by rank {_ranks({part.rank for part in parts})}: its weights")
    axis.set(ylim=(len(parts) - 0.5, -0.5), xlim=(0, 1), yticks=range(len(parts)))
    axis.set_yticklabels([f"step {part.step}" for part in parts])
    axis.set(xticks=[0, 0.25, 0.5, 0.75, 1])
    axis.set_xticklabels(["0", "25 %", "50 %", "75 %", "100 %"])
    return figure


def _by_owner(part: Any) -> list[tuple[int, float]]:
    """Shares of the owners, told as equal: a part knows whose keys it has, not how many each."""
    return [(owner, part.share / len(part.owners)) for owner in part.owners]


def _ranks(ranks: Any) -> str:
    return ", ".join(map(str, sorted(ranks)))


def owners_of_keys(plan: Plan) -> list[list[list[int]]]:
    """[ranks][steps] the ranks at home to the keys that a rank holds in a step.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout([0, 8])
    >>> owners_of_keys(rs.plan(layout, mask=rs.Mask.full(), cp_size=2, comm="p2p"))
    [[[0], [1]], [[1], [0]]]
    """
    home = np.full(plan.layout_k.num_rows, -1)
    for rank in range(plan.cp_size):
        home[plan.row_indices(rank, side="k")] = rank
    return [
        [_owners_in(plan, step, home) for step in plan.steps(rank)] for rank in range(plan.cp_size)
    ]


def _owners_in(plan: Plan, step: Step, home: npt.NDArray[np.int64]) -> list[int]:
    begins = plan.layout_k.cu_seqlens_padded
    rows = [begins[s.seq] + s.pos + s.stride * np.arange(s.len) for s in step.kv]
    return sorted(set(home[np.concatenate(rows)].tolist())) if rows else []


def figure_of_ring(plan: Plan) -> Figure:
    """Whose keys each rank holds in each step: a colour and a number a rank.

    Args:
        plan: of at most 16 ranks and 32 steps.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> figure = learn.figure_of_ring(rs.plan(rs.PackedLayout([0, 8]), cp_size=4))
    """
    if plan.cp_size > MAX_RANKS or plan.num_steps > MAX_STEPS:
        raise InvalidArgument(
            f"got a plan of {plan.cp_size} ranks and {plan.num_steps} steps; expected at most "
            f"{MAX_RANKS} and {MAX_STEPS}. Pass a smaller one"
        )
    return _draw_owners(owners_of_keys(plan), "whose keys a rank holds")


def figure_of_owners_by_step(
    owners: npt.NDArray[np.int64], *, mark: tuple[int, int], title: str
) -> Figure:
    """The same of a table, with one place in it marked.

    Args:
        owners: [ranks, steps].
        mark: (rank, step).
        title: in words.

    >>> figure = figure_of_owners_by_step(np.array([[0, 1], [1, 0]]), mark=(0, 1), title="wrong")
    """
    figure = _draw_owners([[[owner] for owner in steps] for steps in owners.tolist()], "")
    (axis,) = figure.axes
    rank, step = mark
    axis.bar(step, 1, 1, bottom=rank - 0.5, color="none", edgecolor=WRONG, linewidth=2.5)
    axis.set_title(title, fontsize=NORMAL, color=WRONG, loc="left")
    return figure


def _draw_owners(owners: list[list[list[int]]], title: str) -> Figure:
    """[ranks][steps] lists of owners as squares, a colour and a number each."""
    cp_size, num_steps = len(owners), max(map(len, owners), default=0)
    colours = rank_colours(cp_size)
    size = min(0.5, 6.6 / max(num_steps, 1))
    figure, axis = paper(max(size * num_steps + 1.9, 4), size * cp_size + 0.9)
    bare(axis, title)
    for rank, steps in enumerate(owners):
        for step, held in enumerate(steps):
            for place, owner in enumerate(held):
                height = 0.92 / len(held)
                where = (step, rank - 0.46 + place * height)
                _draw_owner(axis, where, height, owner, colours)
    axis.set(xlim=(-0.5, num_steps - 0.5), ylim=(cp_size - 0.5, -0.5), aspect="equal", anchor="W")
    axis.set(xticks=range(num_steps), yticks=range(cp_size))
    axis.set_xticklabels([f"{'step ' if step == 0 else ''}{step}" for step in range(num_steps)])
    axis.set_yticklabels([f"rank {rank}" for rank in range(cp_size)])
    axis.tick_params(length=0)
    return figure


def _draw_owner(
    axis: Axes, where: tuple[float, float], height: float, owner: int, colours: Any
) -> None:
    """A square, or a slice of one."""
    step, top = where
    axis.bar(step, height, 0.92, bottom=top, color=colours[owner], edgecolor=UNSEEN)
    if height > 0.4:
        dark = colours[owner] @ [0.299, 0.587, 0.114] < 0.55
        ink = UNSEEN if dark else INK
        middle = (step, top + height / 2)
        axis.text(*middle, str(owner), ha="center", va="center", fontsize=SMALL, color=ink)


def figure_of_errors(errors: npt.NDArray[np.float64]) -> Figure:
    """[steps + 1] how far a result is from the final one, after each step.

    >>> figure = figure_of_errors(np.array([1.0, 0.5, 0.0]))
    """
    figure, axis = paper(6.4, 2.6)
    axis.bar(range(len(errors)), 100 * errors, 0.7, color=EVEN)
    for step, error in enumerate(errors.tolist()):
        words = f"{100 * error:.3g} %" if error else "0"
        axis.text(step, 100 * error, words, ha="center", va="bottom", fontsize=SMALL, color=INK)
    plain(axis, "error of the result, of its size, after so many steps")
    most = 100 * max(float(errors.max()), 1)
    axis.set(xticks=range(len(errors)), yticks=[0, 50, 100], ylim=(0, 1.15 * most))
    return figure
