"""What an exchange moves, cell by cell: the matrix E that stands for it, as a list of indices."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument, Segment, arguments
from ringside._plan.plan import Plan

Integers = npt.NDArray[np.int64]


class Moves(NamedTuple):
    """An exchange, all ranks' buffers end to end: after it, x is x[source].

    Attributes:
        source: [cells after] which cell of before each one is a copy of.
        rank_before: [cells before] who holds each cell before the exchange.
        rank_after: [cells after] who holds each cell after it.
    """

    source: Integers
    rank_before: Integers
    rank_after: Integers

    @property
    def between_ranks(self) -> Integers:
        """[from, to] how many cells go from rank to rank; what stays is on the diagonal.

        >>> import ringside as rs
        >>> from ringside import learn
        >>> plan = rs.plan(rs.PackedLayout([0, 6]), cp_size=3)
        >>> learn.moves(plan, step=1).between_ranks.tolist()
        [[0, 2, 0], [0, 0, 2], [2, 0, 0]]
        """
        ranks = int(max(self.rank_before.max(initial=-1), self.rank_after.max(initial=-1))) + 1
        counts = np.zeros((ranks, ranks), np.int64)
        np.add.at(counts, (self.rank_before[self.source], self.rank_after), 1)
        return counts


def moves(plan: Plan, step: int, operand: Literal["q", "kv"] = "kv") -> Moves:
    """What the exchange before a step moves, read off Plan.exchange: cells are numbered and moved.

    A cell is a row of one head: of q, or of k and v together.

    Args:
        plan: any.
        step: which exchange.
        operand: "q" or "kv".

    Raises:
        InvalidArgument: the plan has no such step, or there is no such operand.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2, comm="all_gather")
    >>> found = learn.moves(plan, step=0)
    >>> found.source.tolist(), found.rank_after.tolist()  # rank 0 owns positions 0 and 3
    ([0, 2, 3, 1, 0, 2, 3, 1], [0, 0, 0, 0, 1, 1, 1, 1])
    """
    step = arguments.integer(step, "step")
    if not 0 <= step < plan.num_steps:
        raise InvalidArgument(
            f"got step {step}; expected 0 to {plan.num_steps - 1}. Pass a step of the plan"
        )
    if operand not in ("q", "kv"):
        raise InvalidArgument(f'got operand {operand!r}; expected "q" or "kv". Pass one of them')
    shapes = [_shape(plan, rank, step, operand) for rank in range(plan.cp_size)]
    ends = np.cumsum([rows * heads for rows, heads in shapes])
    numbered = [
        np.arange(end - rows * heads, end, dtype=np.float64).reshape(rows, heads, 1)
        for end, (rows, heads) in zip(ends, shapes, strict=True)
    ]
    moved = [x.ravel() for x in plan.exchange(step, operand, numbered)]
    return Moves(
        np.concatenate(moved).astype(np.int64),
        np.repeat(np.arange(plan.cp_size), [x.size for x in numbered]),
        np.repeat(np.arange(plan.cp_size), [x.size for x in moved]),
    )


def _shape(plan: Plan, rank: int, step: int, operand: str) -> tuple[int, int]:
    """(rows, heads) of what a rank holds before a step; before the first one, what it owns."""
    segments: list[Segment]
    if step == 0:
        segments = plan.shards_q(rank) if operand == "q" else plan.shards_k(rank)
        heads = (0, plan.num_heads if operand == "q" else plan.num_kv_heads)
    else:
        before = plan.steps(rank)[step - 1]
        segments = before.q if operand == "q" else before.kv
        heads = before.heads if operand == "q" else before.kv_heads
    return sum(segment.len for segment in segments), heads[1] - heads[0]
