"""Exercise 5: whose keys a rank of a ring holds in a step."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside._core import Mask, PackedLayout
from ringside._plan.build import plan
from ringside.learn._exercise import Answer, Exercise, Wrong, array_of, told
from ringside.learn.figures.ring import figure_of_owners_by_step, owners_of_keys

STUB = '''
def owner(rank, step, cp_size):
    """The rank at home to the keys that a rank of the ring holds in a step, 0 the first."""
'''
MAX_RANKS = 12


class RankAtStep(NamedTuple):
    """A place in the table of a ring."""

    rank: int
    step: int
    cp_size: int


@st.composite
def cases(draw: Any) -> RankAtStep:
    """Every rank and step of rings of 1 to MAX_RANKS ranks."""
    cp_size = draw(st.integers(1, MAX_RANKS))
    return RankAtStep(draw(st.integers(0, cp_size - 1)), draw(st.integers(0, cp_size - 1)), cp_size)


@functools.cache
def table_of(cp_size: int) -> tuple[tuple[int, ...], ...]:
    """[ranks][steps] the owners, read off the plan of a ring, which was proved."""
    layout = PackedLayout.from_lengths([2 * cp_size])
    ring = plan(layout, mask=Mask.full(), cp_size=cp_size, partition="contiguous", comm="p2p")
    ring.verify()
    return tuple(tuple(owner for (owner,) in steps) for steps in owners_of_keys(ring))


def ask(owner: Answer, case: RankAtStep) -> int:
    """The rank that it names."""
    said = owner(case.rank, case.step, case.cp_size)
    number = array_of(said, "iu", "a rank, an integer")
    if number.ndim:
        raise Wrong(f"got {told(said)}; expected a rank, an integer")
    return int(number)


def fault(case: RankAtStep, got: int) -> str:
    """Another rank than the plan's."""
    expected = table_of(case.cp_size)[case.rank][case.step]
    return "" if got == expected else f"got rank {got}; expected rank {expected}, as in the plan"


def drawn(case: RankAtStep, got: int | None) -> Figure:
    """The table of the plan, with the place in it and what the answer says of it."""
    words = f"rank {case.rank}, step {case.step}: got {'nothing' if got is None else got}"
    return figure_of_owners_by_step(
        np.array(table_of(case.cp_size)), mark=(case.rank, case.step), title=words
    )


EXERCISE = Exercise(
    stub=STUB,
    plain=RankAtStep(2, 1, 4),
    cases=cases,
    ask=ask,
    fault=fault,
    told=lambda case: f"rank={case.rank}, step={case.step}, cp_size={case.cp_size}",
    drawn=drawn,
    holds="every rank holds in every step what the plan says",
    examples=300,
)
