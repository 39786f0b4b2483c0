"""Exercise 8: the transpose of an exchange."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside._core import Mask, PackedLayout
from ringside.learn._exercise import Answer, Exercise, Wrong, array_of
from ringside.learn._moves import Moves, moves
from ringside.learn.figures.exchanges import figure_of_transpose
from ringside.testing import strategies
from ringside.testing.cases import Case

STUB = '''
def transpose(source, y, cells_before):
    """An array [cells_before]: E'y, where E moves x to x[source] and y is [cells after]."""
'''


class Exchange(NamedTuple):
    """A step of a case's plan, what it moves, and what is brought back."""

    case: Case
    step: int
    seed: int

    @property
    def moves(self) -> Moves:
        """Of keys and values."""
        return moves(self.case.plan(), self.step)

    def y(self, cells: int) -> Any:
        """[cells] small integers, none of them 0: sums of them are exact."""
        drawn = np.random.default_rng(self.seed).integers(1, 10, size=cells)
        return drawn.astype(np.float64)


def ask(transpose: Answer, exchange: Exchange) -> Any:
    """What it makes of y, as numbers [cells before]."""
    found = exchange.moves
    before = len(found.rank_before)
    expected = f"{before} numbers, one for each cell of before"
    answer = transpose(found.source.copy(), exchange.y(len(found.source)), before)
    got = array_of(answer, "iuf", expected)
    if got.shape != (before,):
        raise Wrong(f"got an array of shape {got.shape}; expected {expected}")
    return got.astype(np.float64)


def fault(exchange: Exchange, got: Any) -> str:
    """The first x, 1 in one cell and else 0, for which <Ex, y> is not <x, E'y>."""
    found = exchange.moves
    y = exchange.y(len(found.source))
    for cell, value in enumerate(got.tolist()):
        copies = np.flatnonzero(found.source == cell)
        if value != y[copies].sum():
            return (
                f"got <x, E'y> = {value:g}; expected <Ex, y> = {y[copies].sum():g}, for x = 1 in "
                f"cell {cell} and 0 elsewhere: E copies it to {_cells(copies)}, where y is "
                f"{_list(y[copies].astype(int))}"
            )
    return ""


def _cells(cells: Any) -> str:
    return f"cells {_list(cells)}" if len(cells) else "no cell"


def _list(numbers: Any) -> str:
    return ", ".join(map(str, numbers.tolist())) or "nothing"


def told(exchange: Exchange) -> str:
    """The exchange."""
    return f"the keys and values of step {exchange.step} of {exchange.case!r}"


def drawn(exchange: Exchange, got: Any) -> Figure:
    """E as a matrix, y beside it, and what comes back below it."""
    found = exchange.moves
    return figure_of_transpose((found[0], found[1], found[2]), exchange.y(len(found.source)), got)


@st.composite
def cases(draw: st.DrawFn) -> Exchange:
    """Any exchange of keys and values of any plan."""
    lengths = strategies.lengths(min_sequences=1, min_length=1, max_length=9)
    case = draw(
        strategies.cases(
            layouts_q=strategies.layouts(lengths=lengths, padding=st.just(0)),
            layouts_k=lambda layout: st.none(),
            masks=st.just(Mask.causal()),
            cp_sizes=st.integers(2, 4),
            partitions=st.sampled_from(["zigzag", "contiguous", "striped"]),
            heads=st.sampled_from([(1, 1), (2, 2), (4, 2)]),
            head_dims=st.just(1),
            softmax_scales=st.none(),
        )
    )
    last = case.plan().num_steps - 1
    return Exchange(case, last - draw(st.integers(0, last)), draw(st.integers(0, 99)))


PLAIN = Exchange(Case(PackedLayout.from_lengths([8]), cp_size=2), 1, 0)
EXERCISE = Exercise(
    stub=STUB,
    plain=PLAIN,
    cases=cases,
    ask=ask,
    fault=fault,
    told=told,
    drawn=drawn,
    holds="<Ex, y> is <x, E'y> for exchanges of every transport",
)
