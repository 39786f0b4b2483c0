"""Exercise 7: when the tiles of a ring's step end."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside._core import Mask, PackedLayout
from ringside._plan.build import plan as new_plan
from ringside._time.model import Links, Table, TimeModel
from ringside.learn._exercise import Answer, Exercise, Wrong, array_of
from ringside.learn.figures.times import figure_of_ring_step

STUB = '''
def ends(last_tiles, last_exchange, room, hop, work):
    """An array: when the tiles of each rank end in a step of a ring, from arrays [ranks] in us."""
'''
CLOSE = 1e-6  # us; sums of so few numbers are closer by far


class Inputs(NamedTuple):
    """What a step begins with, arrays [ranks] of us."""

    last_tiles: Any
    last_exchange: Any
    room: Any
    hop: Any
    work: Any


class RingStep(NamedTuple):
    """A step of a ring over documents, on a machine with links of so many us a MiB."""

    lengths: tuple[int, ...]
    full: bool
    cp_size: int
    us_per_mib: float
    step: int

    @functools.lru_cache(maxsize=16)  # noqa: B019  (tuples of numbers, few of them)
    def timed(self) -> tuple[Inputs, Any, Any]:
        """(what the step begins with, [ranks] when its keys are there, when its tiles end)."""
        mask = Mask.full() if self.full else Mask.causal()
        layout = PackedLayout.from_lengths(list(self.lengths))
        plan = new_plan(layout, mask=mask, cp_size=self.cp_size, num_heads=16, num_kv_heads=16)
        model = _machine(self.us_per_mib)
        found, step = plan.timeline(model), self.step
        tiles, exchange = found.work, found.exchange
        nothing = np.zeros(self.cp_size)
        received = plan.cost().bytes_received[:, step]
        inputs = Inputs(
            tiles.end[:, step - 1],
            exchange.end[:, step - 2] if step > 1 else nothing,
            tiles.end[:, step - 2] if step > 1 else nothing,
            model.links[0].us_of_bytes["hop"](received),
            tiles.end[:, step] - tiles.begin[:, step],
        )
        return inputs, exchange.end[:, step - 1], tiles.end[:, step]


@functools.cache
def _machine(us_per_mib: float) -> TimeModel:
    """An H200 with links of one rate among all ranks, whose host and exchanges cost no tiles."""
    hop = Table((float(1 << 20),), (us_per_mib,))
    return dataclasses.replace(
        TimeModel.preset("h200"),
        links=(Links(None, {"hop": hop}, "made up"),),
        exchange_multiprocessors=0,
        host_us_per_step=0.0,
        overlap=True,
    )


def ask(ends: Answer, ring: RingStep) -> Any:
    """[ranks] us."""
    inputs = ring.timed()[0]
    expected = f"{ring.cp_size} numbers, one for each rank"
    got = array_of(ends(*(x.copy() for x in inputs)), "iuf", expected)
    if got.shape != (ring.cp_size,):
        raise Wrong(f"got an array of shape {got.shape}; expected {expected}")
    return got.astype(np.float64)


def fault(ring: RingStep, got: Any) -> str:
    """The first rank whose tiles end at another time."""
    inputs, arrived, expected = ring.timed()
    for rank, (said, end) in enumerate(zip(got.tolist(), expected.tolist(), strict=True)):
        if not abs(said - end) <= CLOSE:
            return (
                f"got {said:.1f} us for rank {rank}; expected {end:.1f}: its last tiles end at "
                f"{inputs.last_tiles[rank]:.1f}, it has received and sent at {arrived[rank]:.1f}, "
                f"and its tiles take {inputs.work[rank]:.1f}"
            )
    return ""


def told(ring: RingStep) -> str:
    """The ring and its step."""
    mask = "full" if ring.full else "causal"
    return (
        f"step {ring.step} of a {mask} ring of {ring.cp_size} ranks over documents of "
        f"{', '.join(map(str, ring.lengths))} tokens, {ring.us_per_mib:g} us a MiB"
    )


def drawn(ring: RingStep, got: Any) -> Figure:
    """The step of each rank."""
    inputs, arrived, expected = ring.timed()
    return figure_of_ring_step(inputs.last_tiles, arrived, expected, got)


@st.composite
def cases(draw: st.DrawFn) -> RingStep:
    """Documents that reach all ranks; links far quicker and far slower than tiles."""
    cp_size = draw(st.integers(2, 5))
    length = st.integers(2 * cp_size, 40 * cp_size) | st.integers(2 * cp_size, 900 * cp_size)
    lengths = draw(st.lists(length, min_size=1, max_size=3))
    rate = draw(st.sampled_from([100.0, 10.0, 1000.0, 0.0625]))
    return RingStep(
        tuple(lengths), draw(st.booleans()), cp_size, rate, draw(st.integers(1, cp_size - 1))
    )


EXERCISE = Exercise(
    stub=STUB,
    plain=RingStep((1024,), False, 2, 100.0, 1),
    cases=cases,
    ask=ask,
    fault=fault,
    told=told,
    drawn=drawn,
    holds="the tiles end when the timeline says",
    examples=60,
)
