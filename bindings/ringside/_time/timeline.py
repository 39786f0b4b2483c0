"""What each rank does when: predicted by a model, or measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from ringside._time import trace
from ringside._time.model import Float64
from ringside._time.walk import Spans

Kind = Literal["work", "exchange"]
Owners = Callable[[int, int], tuple[int, ...]]


class Event(NamedTuple):
    """Something that a rank does.

    Attributes:
        rank: who.
        step: of the plan.
        kind: "work": tiles, merges and sums; "exchange": messages, sent and received together.
        begin_us: microseconds from the beginning of the pass.
        end_us: of it.
        owners: ranks at home to the keys and values of the step.
    """

    rank: int
    step: int
    kind: Kind
    begin_us: float
    end_us: float
    owners: tuple[int, ...]


def _nobody(rank: int, step: int) -> tuple[int, ...]:
    return ()


@dataclass(frozen=True, eq=False)
class Timeline:
    """When each rank works and exchanges in one pass.

    Attributes:
        direction: "forward" or "backward".
        source: the name of the model, or what was measured.
        work: arrays [ranks, n] of begins and ends, and the step of each column. A rank's lie one
            after the other.
        exchange: likewise; exchanges of a rank, too, lie one after the other.
        peak_bytes: [ranks] of workspace beside a rank's own arrays, where it is known.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 65536]), cp_size=4, num_heads=16)
    >>> timeline = plan.timeline("h200")
    >>> timeline.work.begin.shape, timeline.events[0].kind, timeline.events[0].owners
    ((4, 4), 'work', (0,))
    """

    direction: str
    source: str
    work: Spans
    exchange: Spans
    peak_bytes: np.ndarray
    _owners: Owners = field(default=_nobody, repr=False)

    @property
    def num_ranks(self) -> int:
        """Ranks."""
        return len(self.work.begin)

    @cached_property
    def end_us(self) -> Float64:
        """[ranks] when a rank has done everything.

        >>> import ringside as rs
        >>> timeline = rs.plan(rs.PackedLayout([0, 4096]), cp_size=2).timeline("h200")
        >>> bool(timeline.end_us.max() == timeline.total_us)
        True
        """
        ends = np.concatenate([self.work.end, self.exchange.end], axis=1)
        return ends.max(axis=1, initial=0.0)

    @property
    def total_us(self) -> float:
        """When the last rank has done everything."""
        return float(self.end_us.max(initial=0.0))

    @cached_property
    def work_us(self) -> Float64:
        """[ranks] that a rank works.

        >>> import ringside as rs
        >>> timeline = rs.plan(rs.PackedLayout([0, 4096]), cp_size=2).timeline("h200")
        >>> timeline.work_us.shape
        (2,)
        """
        return (self.work.end - self.work.begin).sum(axis=1)

    @cached_property
    def exposed_us(self) -> Float64:
        """[ranks] in which a rank exchanges and does not work.

        >>> import ringside as rs
        >>> timeline = rs.plan(rs.PackedLayout([0, 4096]), cp_size=2).timeline("h200")
        >>> parts = timeline.work_us + timeline.exposed_us + timeline.idle_us
        >>> bool((abs(parts - timeline.total_us) < 1e-6).all())
        True
        """
        hidden = np.zeros(self.num_ranks)
        for rank in range(self.num_ranks):
            begin, end = self.work.begin[rank], self.work.end[rank]
            if begin.size:
                hidden[rank] = _worked(begin, end, self.exchange.end[rank]).sum()
                hidden[rank] -= _worked(begin, end, self.exchange.begin[rank]).sum()
        return (self.exchange.end - self.exchange.begin).sum(axis=1) - hidden

    @property
    def idle_us(self) -> Float64:
        """[ranks] in which a rank neither works nor exchanges, up to the end of the last rank."""
        return np.maximum(self.total_us - self.work_us - self.exposed_us, 0.0)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All that takes time, rank after rank, by when it begins.

        >>> import ringside as rs
        >>> timeline = rs.plan(rs.PackedLayout([0, 4096]), cp_size=2).timeline("h200")
        >>> [(event.rank, event.kind, event.step) for event in timeline.events][:3]
        [(0, 'work', 0), (0, 'exchange', 1), (0, 'work', 1)]
        """
        return tuple(sorted(self._listed(), key=lambda event: (event.rank, event.begin_us)))

    def _listed(self) -> list[Event]:
        found: list[Event] = []
        kinds: tuple[tuple[Kind, Spans], ...] = (("work", self.work), ("exchange", self.exchange))
        for kind, spans in kinds:
            for rank, column in zip(*np.nonzero(spans.end > spans.begin), strict=True):
                step = spans.steps[column]
                when = float(spans.begin[rank, column]), float(spans.end[rank, column])
                found.append(Event(int(rank), step, kind, *when, self._owners(int(rank), step)))
        return found

    def _with_owners(self, owners: Owners) -> Timeline:
        """The same, whose events name the ranks at home to their keys."""
        return replace(self, _owners=owners)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto and chrome://tracing: a process a rank, with two tracks.

        Args:
            path: of the JSON file.

        >>> import ringside as rs, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "ring.json"
        >>> rs.plan(rs.PackedLayout([0, 4096]), cp_size=2).timeline("h200").save(path)
        >>> path.stat().st_size > 200
        True
        """
        trace.write(path, self)

    def __repr__(self) -> str:
        """Its numbers, of the slowest rank."""
        return (
            f"<Timeline {self.direction} by {self.source}: {self.num_ranks} ranks, "
            f"{self.total_us:,.1f} us, exposed at most {self.exposed_us.max(initial=0.0):,.1f}, "
            f"idle at most {self.idle_us.max(initial=0.0):,.1f}>"
        )


def _worked(begin: Float64, end: Float64, when: Float64) -> Float64:
    """How long a rank has worked until then: its work lies in order."""
    edges = np.stack([begin, end], axis=1).ravel()
    amount = np.repeat(np.cumsum(np.concatenate([[0.0], end - begin])), 2)[1:-1]
    return np.interp(when, edges, amount)


def of_events(
    events: Sequence[Event], num_ranks: int, direction: str, source: str, owners: Owners
) -> Timeline:
    """A timeline of what was measured; ranks may have done unlike things."""
    work, exchange = (
        _spans([event for event in events if event.kind == kind], num_ranks)
        for kind in ("work", "exchange")
    )
    return Timeline(direction, source, work, exchange, np.zeros(num_ranks, np.int64), owners)


def _spans(events: Sequence[Event], num_ranks: int) -> Spans:
    """A column an event: the ranks that did nothing there stay where they were."""
    ordered = sorted(events, key=lambda event: event.begin_us)
    begin, end = (np.zeros((num_ranks, len(ordered))) for _ in range(2))
    at = np.zeros(num_ranks)
    for column, event in enumerate(ordered):
        begin[:, column] = end[:, column] = at
        begin[event.rank, column], at[event.rank] = event.begin_us, event.end_us
        end[event.rank, column] = event.end_us
    return Spans(begin, end, tuple(event.step for event in ordered))
