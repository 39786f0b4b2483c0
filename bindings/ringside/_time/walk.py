"""Who waits for whom: begins and ends of exchanges and tiles of all ranks, step after step.

A rank has one link and one device. Exchanges keep their order on the link, tiles on the device. The
operands of a step leave when they have arrived at the sender, when the links of both ends are free
and when the receiver has room: they land in one of two buffers in turn, so where the tiles of the
step before the last have read theirs. Tiles begin when their operands are there and the tiles
before have ended. Gradients leave after the tiles they come from, and are added at the other end
after the next tiles. Without overlap each waits for all before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ringside._time.loads import Exchanges, Loads
from ringside._time.model import Float64, TimeModel


class Spans(NamedTuple):
    """When something was under way, [ranks, columns] us; of no length where nothing was.

    Attributes:
        begin: of it.
        end: of it.
        steps: [columns] of the plan.
    """

    begin: Float64
    end: Float64
    steps: tuple[int, ...]


class Walk(NamedTuple):
    """A pass: tiles and sums, and exchanges, each in the order in which a rank comes to them."""

    work: Spans
    exchange: Spans


class _Exchange(NamedTuple):
    begin: Float64
    end: Float64
    there: np.ndarray  # whether a rank takes part


class _State:
    """Where all ranks are."""

    def __init__(self, ranks: int, model: TimeModel) -> None:
        self.device, self.link = np.zeros(ranks), np.zeros(ranks)
        self.host = model.host_us_per_step
        self.share = model.exchange_multiprocessors / model.multiprocessors
        self.under_way: list[_Exchange] = []
        self.noted: dict[str, list[tuple[Float64, Float64, int]]] = {"work": [], "exchange": []}

    def post(
        self, of: Exchanges, column: int, steps: tuple[int, ...], room: Float64
    ) -> _Exchange | None:
        """An exchange on all ranks, once there is room where it lands; None where there is none."""
        us, ready = of.us[:, column], np.maximum(self.link, room)
        if not us.any():
            return None
        if of.kinds[column] == "hop":
            made = _hop(us, ready, of.offsets[column])
        elif of.kinds[column] == "fetch" or of.group == 0:
            made = _Exchange(ready, ready + us, us > 0)
        else:
            made = _together(us, ready, of.group)
        begin, end = (np.where(made.there, x, self.link) for x in (made.begin, made.end))
        self.noted["exchange"].append((begin, end, steps[column]))
        self.link = end
        self.under_way.append(_Exchange(begin, end, made.there))
        return self.under_way[-1]

    def compute(self, work: Float64, step: int, arrived: _Exchange | None) -> Float64:
        """Tiles, once their operands are there; when they have ended."""
        works, begin = work > 0, self.device
        if arrived is not None:
            begin = np.where(arrived.there, np.maximum(begin, arrived.end), begin)
        begin = begin + self.host
        # Not by `begin`: a rank without tiles here comes to its next ones sooner.
        self.under_way = [x for x in self.under_way if (x.end > self.device).any()]
        end = _slowed(begin, work, self.under_way, self.share) if self.share else begin + work
        begin, end = np.where(works, begin, self.device), np.where(works, end, self.device)
        self.noted["work"].append((begin, end, step))
        self.device = end
        return end

    def add(self, loads: Loads, column: int, arrived: _Exchange | None) -> None:
        """What came is added to the rank's own."""
        if arrived is None:
            return
        took = loads.add[:, column]
        adds = took > 0
        begin = np.where(adds, np.maximum(self.device, arrived.end), self.device)
        self.noted["work"].append((begin, begin + took, loads.steps[column]))
        self.device = begin + took

    def spans(self, kind: str) -> Spans:
        noted = self.noted[kind]
        if not noted:
            return Spans(np.zeros((len(self.device), 0)), np.zeros((len(self.device), 0)), ())
        begins, ends, steps = zip(*noted, strict=True)
        return Spans(np.stack(begins, axis=1), np.stack(ends, axis=1), steps)


def walk(loads: Loads, model: TimeModel) -> Walk:
    """All steps of a pass."""
    ranks, steps = loads.work.shape
    state = _State(ranks, model)
    incoming = state.post(loads.before, 0, loads.steps, state.device) if steps else None
    outgoing, read = None, np.zeros(ranks)
    for i in range(steps):
        arrived, late = incoming, outgoing
        ahead = i + 1 < steps
        if ahead and model.overlap:
            incoming = state.post(loads.before, i + 1, loads.steps, read)
        read = state.compute(loads.work[:, i], loads.steps[i], arrived)
        state.add(loads, i - 1, late)
        outgoing = state.post(loads.after, i, loads.steps, state.device)
        if not model.overlap:
            state.device = np.maximum(state.device, state.link)
            if ahead:
                incoming = state.post(loads.before, i + 1, loads.steps, state.device)
    state.add(loads, steps - 1, outgoing)
    return Walk(state.spans("work"), state.spans("exchange"))


def _hop(us: Float64, ready: Float64, offset: int) -> _Exchange:
    """Each rank sends to one and receives from one, and is done when both are."""
    ranks = np.arange(len(us))
    source, target = (ranks - offset) % len(us), (ranks + offset) % len(us)
    comes, goes = us > 0, us[target] > 0
    begin_in = np.where(comes, np.maximum(ready, ready[source]), np.inf)
    end_in = np.where(comes, begin_in + us, -np.inf)
    begin = np.minimum(begin_in, begin_in[target])
    end = np.maximum(end_in, end_in[target])
    return _Exchange(begin, end, comes | goes)


def _together(us: Float64, ready: Float64, group: int) -> _Exchange:
    """Ranks of a group begin when all are there, and end with the longest."""
    there = us > 0
    first = np.arange(0, len(us), group)
    begins = np.maximum.reduceat(np.where(there, ready, 0.0), first)
    lasts = np.maximum.reduceat(us, first)
    of = np.arange(len(us)) // group
    return _Exchange(begins[of], begins[of] + lasts[of], there)


def _slowed(begin: Float64, work: Float64, under: list[_Exchange], share: float) -> Float64:
    """When work ends that has less of the device while exchanges are under way.

    These lie one after the other, so each delays what is left of the work when it begins.
    """
    end = begin + work
    for exchange in under:
        first = np.maximum(exchange.begin, begin)
        left = np.maximum(end - first, 0.0)  # at full speed, from there on
        slow = np.maximum(exchange.end - first, 0.0)
        within = np.minimum(left, slow * (1 - share))
        end = np.where(exchange.there, end + within / (1 - share) - within, end)
    return end
