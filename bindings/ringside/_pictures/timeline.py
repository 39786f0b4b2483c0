"""When each rank works: a row of bars a rank, from what a kernel computes, or from a model.

A bar has the colour of who works, the later the step, the lighter, and below it those whose keys
and values it reads. What can be drawn is anything with events; Plan.timeline of a model has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringside._pictures.colours import INK, Colours, ink_on, lightened
from ringside._pictures.figure import SMALL, paint_boxes, plain, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ringside import _core

FEW_ROWS = 1024  # of packs whose work is told in pairs: one block of a kernel would hold much of it
LABELLED, WITH_ARROWS = 16, 8  # ranks: below more bars stand no owners
MOST_LABELS = 150
BAR, STRIP, LANE = 0.58, 0.12, 0.1  # heights of bars, of strips of owners, of exchanges; of a row


class Event(NamedTuple):
    """A bar.

    Attributes:
        rank: who.
        step: of the plan.
        kind: "work", or "exchange".
        begin, end: when, in the unit of the times.
        owners: ranks whose keys and values are computed with, or travel.
    """

    rank: int
    step: int
    kind: str
    begin: float
    end: float
    owners: tuple[int, ...]


@dataclass(frozen=True)
class Times:
    """What is drawn.

    Attributes:
        events: of all ranks.
        total: when the last one ends.
        ideal: when it would end if all work were spread evenly and nothing waited.
        unit: of begin, end, total.
        words: what else a title says.
        waits: whether a step begins when all ranks have ended the last.
    """

    events: tuple[Event, ...]
    total: float
    ideal: float
    unit: str
    words: str
    waits: bool


def owners_by_step(plan: _core.Plan) -> list[list[tuple[int, ...]]]:
    """[ranks][steps] whose keys are there."""
    return [[tuple(step.owners) for step in plan.steps(rank)] for rank in range(plan.cp_size)]


def counted(plan: _core.Plan) -> Times:
    """From counts: blocks of 128 x 128 that a kernel computes; pairs, in small packs."""
    cost = plan.cost()
    in_pairs = max(plan.layout_q.num_rows, plan.layout_k.num_rows) <= FEW_ROWS
    work = np.asarray(cost.pairs if in_pairs else cost.blocks, float)
    begins = np.concatenate([[0], np.cumsum(work.max(axis=0, initial=0))])
    owners = owners_by_step(plan)
    events = tuple(
        Event(rank, step, "work", begins[step], begins[step] + work[rank, step], owners[rank][step])
        for rank, step in np.argwhere(work > 0).tolist()
    )
    unit = "pairs" if in_pairs else "blocks of 128 x 128"
    words = f"imbalance of pairs {cost.imbalance:.2f}, blocks {cost.fill:.1%} full"
    return Times(events, float(begins[-1]), work.sum() / plan.cp_size, unit, words, True)


def told(timeline: Any, cp_size: int) -> Times:
    """From what has `events` with rank, step, kind, begin_us, end_us and owners, and `total_us`."""
    try:
        events = tuple(
            Event(
                *(int(x.rank), int(x.step), str(x.kind)),
                *(float(x.begin_us), float(x.end_us), tuple(x.owners or ())),
            )
            for x in timeline.events
        )
        total = float(timeline.total_us)
    except (AttributeError, TypeError) as error:
        raise TypeError(
            f"timeline is a {type(timeline).__name__}; expected .total_us and .events, each with "
            f"rank, step, kind, begin_us, end_us and owners ({error})"
        ) from None
    work = sum(event.end - event.begin for event in events if event.kind == "work")
    said = (getattr(timeline, name, None) for name in ("direction", "source"))
    words = ", ".join(str(word) for word in said if word)
    return Times(events, total, work / max(cp_size, 1), "microseconds", words, False)


def paint_times(axis: Axes, plan: _core.Plan, times: Times, colours: Colours) -> None:
    """All of it on one axis, without a title."""
    ranks = plan.cp_size
    right = times.total * 1.02 or 1.0
    axis.set(xlim=(0, right), ylim=(ranks - 0.5, -0.5), ylabel="rank")
    axis.set_xlabel(times.unit + (", all heads" if times.waits else ""))
    axis.set_yticks(np.arange(0, ranks, 1 if ranks <= 32 else -(-ranks // 16)))
    axis.xaxis.set_major_locator(_few_ticks())
    axis.xaxis.set_major_formatter("{x:,.0f}")
    plain(axis)
    axis.tick_params(axis="y", length=0, pad=10)
    _colour_ticks(axis, colours)
    _paint_bars(axis, times.events, colours, plan.num_steps)
    axis.axvline(times.ideal, color="black", linestyle=":", linewidth=1.2, zorder=3)
    if times.waits:
        begins = sorted({event.begin for event in times.events if event.begin > 0})
        for begin in begins if len(begins) < 40 else ():
            axis.axvline(begin, color=INK, linewidth=0.4, zorder=0)
        if ranks <= WITH_ARROWS:
            _paint_arrows(axis, plan, times.events)
    tall = size_of(axis)[1] / ranks * BAR
    if len(times.events) <= MOST_LABELS and tall >= 0.12:  # inches
        _label(axis, times.events, colours, plan.num_steps)


def title_of(times: Times, cp_size: int) -> tuple[str, ...]:
    """Two sentences on what the axis shows."""
    if not times.events:
        return ("when each rank works: there is nothing to compute",)
    ratio = times.total / times.ideal
    first = "when each rank works"
    first += "; below a bar, whose K/V it reads" if cp_size <= LABELLED else ""
    first += "; lowest, whose travel" if any(x.kind != "work" for x in times.events) else ""
    second = f"{ratio:.2f} x the ideal (dotted)" + (f"; {times.words}" if times.words else "")
    return first, second


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4, integer=True)


def _left_by(axis: Axes, points: float) -> Any:
    from matplotlib.transforms import ScaledTranslation

    return ScaledTranslation(-points / 72, 0, axis.figure.dpi_scale_trans)


def _colour_ticks(axis: Axes, colours: Colours) -> None:
    """A chip in the colour of each rank beside its number."""
    axis.scatter(
        np.zeros(len(colours)),
        np.arange(len(colours)),
        transform=axis.get_yaxis_transform() + _left_by(axis, 6),
        s=36 if len(colours) <= 16 else 4,
        c=colours,
        marker="s",
        edgecolors=INK,
        linewidths=0.4,
        clip_on=False,
        zorder=6,
    )


def _paint_bars(axis: Axes, events: Iterable[Event], colours: Colours, num_steps: int) -> None:
    work = [event for event in events if event.kind == "work"]
    moves = [event for event in events if event.kind != "work"]
    bars = [(e.begin, e.end, e.rank - 0.4, e.rank - 0.4 + BAR) for e in work]
    ranks, steps = np.array([e.rank for e in work], int), np.array([e.step for e in work], int)
    paint_boxes(axis, "work", bars, lightened(colours[ranks], steps, num_steps), INK)
    for name, group, top, height in (
        *(("owners", work if len(colours) <= LABELLED else [], -0.4 + BAR + 0.02, STRIP),),
        *(("exchange", moves, 0.33, LANE),),
    ):
        spans, owners = [], []
        for event in group:
            width = (event.end - event.begin) / max(len(event.owners), 1)
            for i, owner in enumerate(event.owners):
                left = event.begin + i * width
                spans.append((left, left + width, event.rank + top, event.rank + top + height))
                owners.append(owner)
        paint_boxes(axis, name, spans, colours[np.array(owners, int)], "none")


def _label(axis: Axes, events: Iterable[Event], colours: Colours, num_steps: int) -> None:
    """Whose keys, in words, where a bar has room; numbers alone where it has less."""
    right = axis.get_xlim()[1]
    inches = size_of(axis)[0]
    for event in events:
        if event.kind != "work" or not event.owners:
            continue
        room = (event.end - event.begin) / right * inches / 0.075
        words = whose(event.owners, len(colours))
        text = next((x for x in (f"K/V {words}", words) if len(x) + 0.6 <= room), "")
        if text:
            ground = lightened(colours[event.rank], event.step, num_steps)
            middle = (event.begin + event.end) / 2
            axis.text(
                *(middle, event.rank - 0.4 + BAR / 2, text),
                color=ink_on(ground),
                fontsize=SMALL,
                ha="center",
                va="center_baseline",
                zorder=4,
                in_layout=False,
            )


def whose(owners: Sequence[int], cp_size: int) -> str:
    """Ranks, in few letters.

    >>> whose((2,), 4), whose((0, 1, 2, 3), 4), whose((0, 1, 3), 4)
    ('2', 'of all', '0, 1, 3')
    """
    if len(owners) == cp_size > 1:
        return "of all"
    return ", ".join(map(str, owners)) if len(owners) <= 3 else f"of {len(owners)}"


def _paint_arrows(axis: Axes, plan: _core.Plan, events: Iterable[Event]) -> None:
    """From whom a rank's keys come, between the rows of two neighbours; rings close at the edge."""
    begins = {event.step: event.begin for event in events}
    last = plan.cp_size - 1
    for rank in range(plan.cp_size):
        for number, step in enumerate(plan.steps(rank)):
            if step.exchange != "ring_shift" or number not in begins:
                continue
            for peer in {message.peer for message in step.receives} - {rank}:
                if abs(peer - rank) == 1:
                    _arrow(axis, begins[number], peer, rank)
                elif {peer, rank} == {0, last}:
                    down = peer == last  # the ring goes down, out below and in again above
                    _arrow(axis, begins[number], last if down else 0, last + 1 if down else -1)
                    _arrow(axis, begins[number], -1 if down else last + 1, rank)


def _arrow(axis: Axes, at: float, start: int, end: int) -> None:
    """Beside the line where a step begins, from the foot of one row to the head of the next."""
    down = end > start
    first, then = (start + 0.34, end - 0.42) if down else (start - 0.42, end + 0.34)
    low, high = -0.5, axis.get_ylim()[0]
    axis.annotate(
        "",
        (at, min(max(then, low), high)),
        (at, min(max(first, low), high)),
        arrowprops={
            **{
                "arrowstyle": "-|>",
                "color": INK,
                "linewidth": 1.1,
                "mutation_scale": 7 if axis.get_ylim()[0] < 5 else 4,
            },
            **{"shrinkA": 0, "shrinkB": 0},
        },
        zorder=5,
    )
