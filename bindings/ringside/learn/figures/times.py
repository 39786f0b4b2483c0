"""Pictures of time: who works and exchanges when, and how long it takes on more ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument
from ringside._pictures.colours import rank_colours
from ringside.learn.figures.paper import INK, PADDING, RULE, SMALL, WRONG, paper, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import Timeline

MAX_RANKS = 16
LINES = ("#332288", "#AA3377", "#228833", "#66CCEE", "#999933")


def figure_of_timelines(timelines: Mapping[str, Timeline]) -> Figure:
    """When each rank works, in its hue, and exchanges, in grey below; one panel each, one scale.

    Args:
        timelines: of at most 16 ranks, by name.

    Raises:
        InvalidArgument: none, or one of more ranks.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> timeline = rs.plan(rs.PackedLayout([0, 65536]), cp_size=4, num_heads=16).timeline("h200")
    >>> len(learn.figure_of_timelines({"p2p": timeline}).axes)
    1
    """
    ranks = max((timeline.num_ranks for timeline in timelines.values()), default=0)
    if not 1 <= ranks <= MAX_RANKS:
        raise InvalidArgument(
            f"got timelines of {ranks} ranks; expected 1 to {MAX_RANKS}, two bars each. Pass such"
        )
    height = 0.7 + (0.3 + 0.2 * ranks) * len(timelines)
    figure, axes = paper(8.4, height, len(timelines), 1, squeeze=False, sharex=True)
    for axis, (name, timeline) in zip(axes[:, 0], timelines.items(), strict=True):
        _draw_timeline(axis, timeline)
        plain(axis, f"{name}: {timeline.total_us:,.0f} us")
        axis.set(ylim=(ranks - 0.4, -0.6), yticks=range(timeline.num_ranks))
        axis.set_ylabel("rank", fontsize=SMALL, color=INK)
        axis.set_xlim(0, None)
    axes[-1, 0].set_xlabel("us; grey: keys and values on their way", fontsize=SMALL, color=INK)
    return figure


def _draw_timeline(axis: Axes, timeline: Timeline) -> None:
    colours = rank_colours(timeline.num_ranks)
    for rank in range(timeline.num_ranks):
        for spans, bottom, height, colour in (
            (timeline.work, rank - 0.42, 0.56, colours[rank]),
            (timeline.exchange, rank + 0.18, 0.22, RULE),
        ):
            begins, ends = spans.begin[rank], spans.end[rank]
            bars = [(b, e - b) for b, e in zip(begins, ends, strict=True) if e > b]
            axis.broken_barh(bars, (bottom, height), facecolor=colour, edgecolor="white", lw=0.6)


def figure_of_times_by_ranks(lines: Mapping[str, Mapping[int, Any]]) -> Figure:
    """Milliseconds by the number of ranks: in all, solid, and of the work alone, dashed.

    Args:
        lines: times by the number of ranks, as of learn.times_by_ranks, under a name.

    >>> from ringside import learn
    >>> time = learn.Time(total=3.0, work=2.0, exposed=1.0)
    >>> len(learn.figure_of_times_by_ranks({"p2p": {8: time, 16: time}}).axes)
    1
    """
    if not lines or not all(lines.values()):
        raise InvalidArgument("got no times; expected some under each name. Pass some")
    figure, axis = paper(8.4, 3.8, 1, 1)
    for (name, times), colour in zip(lines.items(), LINES * len(lines), strict=False):
        sizes = sorted(times)
        total, work = ([getattr(times[n], what) for n in sizes] for what in ("total", "work"))
        axis.plot(sizes, total, "o-", color=colour, label=name)
        axis.plot(sizes, work, "--", color=colour, linewidth=1)
    every = sorted({size for times in lines.values() for size in times})
    plain(axis, "ms of a forward pass; dashed: of work alone")
    axis.set(xscale="log", yscale="log", xticks=every)
    axis.set_xticklabels([f"{size:,}" for size in every])
    axis.tick_params(which="minor", length=0, labelbottom=False)
    axis.set_xlabel("ranks", fontsize=SMALL, color=INK)
    axis.legend(fontsize=SMALL, frameon=False, labelcolor=INK)
    return figure


def figure_of_ring_step(
    before: npt.ArrayLike, arrived: npt.ArrayLike, ends: npt.ArrayLike, got: npt.ArrayLike | None
) -> Figure:
    """A step of each rank: tiles before it, its exchange, its tiles, and somebody's end of them.

    Args:
        before: [ranks] when the tiles of the last step end.
        arrived: [ranks] when the step's keys are there.
        ends: [ranks] when the step's tiles end.
        got: [ranks] when somebody says they do; None for nothing.

    >>> len(figure_of_ring_step([1.0, 2.0], [3.0, 1.0], [4.0, 4.0], [4.0, 3.0]).axes)
    1
    """
    before, arrived, ends = (np.asarray(x, dtype=np.float64) for x in (before, arrived, ends))
    figure, axis = paper(7.2, 1.1 + 0.42 * len(ends), 1, 1)
    colours = rank_colours(len(ends))
    begins = np.maximum(before, arrived)
    for rank, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        axis.barh(rank, before[rank], 0.5, color=PADDING)
        axis.barh(rank, end - begin, 0.5, left=begin, color=colours[rank])
        axis.plot([arrived[rank]] * 2, [rank - 0.42, rank + 0.42], color=INK, linewidth=1.5)
        if got is not None:
            said = float(np.asarray(got)[rank])
            wrong = not np.isclose(said, end)
            if np.isfinite(said):
                axis.plot(said, rank, "D", color=WRONG if wrong else INK, markersize=5)
    plain(axis, "grey: tiles of the step before; line: keys are there; diamond: got")
    axis.set(yticks=range(len(ends)), ylim=(len(ends) - 0.4, -0.6))
    axis.set_ylabel("rank", fontsize=SMALL, color=INK)
    axis.set_xlabel("us", fontsize=SMALL, color=INK)
    return figure
