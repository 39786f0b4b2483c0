"""Where an implementation of plans goes wrong: the first step, its rank, the tile, the row.

A plan is data, so it can be run in parts: its first s steps, then one step's tiles with the
exchanges before it, then half of those tiles, a quarter, one. Each part has its own right answer,
the reference's, and the first that comes out wrong names the fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import ringside as rs
from ringside._rows import place
from ringside.testing._judging import errors, first
from ringside.testing.cases import Array, Arrays
from ringside.testing.dtypes import float_of, round_to

Name = tuple[int, int, int]  # of a tile: step, rank, index
Wrong = tuple[str, int, int, int, float, float]  # tensor, document, position, head, got, expected


@dataclasses.dataclass(frozen=True)
class Location:
    """Where an implementation of a plan and the reference part.

    >>> from ringside.testing import Location
    >>> print(Location("forward", 1, 0, None, "out", 0, 5, 1, 0.5, 0.25, "only in that step"))
    forward, step 1, rank 0: out at row 5 of document 0, head 1: got 0.5, expected 0.25
      (only in that step)

    Args:
        direction: "forward" or "backward".
        step: the first one with which results are wrong.
        rank: whose tiles; None where several ranks must compute before anything is wrong.
        tile: which tile; None where several must be computed before anything is wrong.
        tensor: "out", "lse", "dq", "dk" or "dv".
        document, position, head: the first wrong number of that part of the plan; the head is a kv
            head for dk and dv.
        got, expected: that number, and the reference's.
        part: what was run, in words.
    """

    direction: str
    step: int
    rank: int | None
    tile: rs.Tile | None
    tensor: str
    document: int
    position: int
    head: int
    got: float
    expected: float
    part: str

    def __str__(self) -> str:
        """Two or three lines."""
        where = f"{self.direction}, step {self.step}"
        where += "" if self.rank is None else f", rank {self.rank}"
        if self.tile is not None:
            q, k = (_positions(segment) for segment in (self.tile.q, self.tile.k))
            where += f", queries {q} against keys {k} of document {self.tile.q.seq}"
        return (
            f"{where}: {self.tensor} at row {self.position} of document {self.document}, head "
            f"{self.head}: got {self.got:.9g}, expected {self.expected:.9g}\n  ({self.part})"
        )


def locate(
    plan: rs.Plan,
    run: Callable[..., Any],
    arrays: Arrays,
    *,
    backward: Callable[..., Any] | None = None,
    dtype: str = "float32",
    **options: Any,
) -> Location | None:
    """Finds the step, rank and tile where your implementation of plans goes wrong.

    It is run on parts of the plan, each compared with plan.attention: the first s steps for
    s = 1, 2, ... until results differ; that step alone; and fewer and fewer of its tiles. Exchanges
    stay, so that what a tile reads has come the way it always comes. Parts do not cover every
    visible pair: verify() refuses them, and run must not call it.

    Args:
        plan: a plan on which run is wrong.
        run: run(plan, q, k, v, **options) -> (out, lse) of global arrays, every rank of the plan.
        arrays: q, k, v, dout, as Case.arrays makes them.
        backward: backward(plan, dout, q, k, v, out, lse, **options) -> (dq, dk, dv, ...); default
            none is checked. out and lse are the reference's.
        dtype: that the implementation computes in. Numbers differ when they are 256 roundoffs of
            its sums (float32, float64 for itself) and 4 of its own apart, of the largest number of
            the tensor, or of 1: far above rounding, far below a fault of indexing.
        options: keywords for run, backward and plan.attention.

    Returns:
        Where, or None where nothing differs.

    >>> import ringside as rs
    >>> from ringside.testing import Case, locate
    >>> case = Case(rs.PackedLayout([0, 8]), cp_size=2, partition="contiguous")
    >>> def mine(plan, q, k, v):
    ...     out, lse = plan.attention(q, k, v)
    ...     if plan.num_steps == 2 and plan.steps(1)[1].tiles:
    ...         out[6, 0, 0] += 0.5
    ...     return out, lse
    >>> print(locate(case.plan(), mine, case.arrays()))  # doctest: +ELLIPSIS
    forward, step 1, rank 1, queries 4..7 against keys 0..3 of document 0: out at row 6 ...
      (of this tile alone)
    """
    tolerance = 256 * float_of("float64" if dtype == "float64" else "float32").roundoff
    tolerance += 4 * float_of(dtype).roundoff
    forward = _Forward(run, arrays, options, tolerance)
    found = _search(plan, forward)
    if found is None and backward is not None:
        found = _search(plan, _Backward(backward, arrays, options, tolerance, dtype))
    return found


@dataclasses.dataclass
class _Forward:
    """Compares what a part of a plan returns; gives the first wrong number, or None."""

    run: Callable[..., Any]
    arrays: Arrays
    options: dict[str, Any]
    tolerance: float
    direction = "forward"

    def results(self, plan: rs.Plan) -> tuple[Sequence[str], Sequence[Array], Sequence[Array]]:
        """Names, the implementation's, the reference's."""
        given = self.arrays[:3]
        got = self.run(plan, *given, **self.options)
        return ("out", "lse"), got, plan.attention(*given, **self.options)

    def __call__(self, plan: rs.Plan) -> Wrong | None:
        """The first wrong number."""
        names, got, expected = self.results(plan)
        for name, ours, truth in zip(names, got, expected, strict=False):
            ours, truth = (np.asarray(x, dtype=np.float64) for x in (ours, truth))
            if name == "lse":
                ours, truth = ours.T[..., None], truth.T[..., None]  # rows first, as the others
            index = first(~(errors(ours, truth) <= self.tolerance * _size(truth)))
            if index is not None:
                layout = plan.layout_k if name in ("dk", "dv") else plan.layout_q
                document, position, _ = place(layout, index[0])
                values = float(ours[index]), float(truth[index])
                return name, document, position, index[1], *values
        return None


@dataclasses.dataclass
class _Backward(_Forward):
    dtype: str = "float32"
    direction = "backward"

    def results(self, plan: rs.Plan) -> tuple[Sequence[str], Sequence[Array], Sequence[Array]]:
        """Both from the reference's out and lse."""
        q, k, v, dout = self.arrays
        out, lse = plan.attention(q, k, v, **self.options)
        given = (dout, q, k, v, round_to(out, self.dtype), lse)
        got = self.run(plan, *given, **self.options)
        return ("dq", "dk", "dv"), got, plan.attention_backward(*given, **self.options)


def _size(expected: Array) -> float:
    """The largest number of a tensor, at least 1."""
    return max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)))


def _search(plan: rs.Plan, compare: _Forward) -> Location | None:
    """Steps, then tiles; each time the first that is enough for a wrong number."""
    found = compare(plan)
    if found is None:
        return None
    for step in range(plan.num_steps):
        if wrong := compare(plan._part(step + 1)):
            return _in_step(plan, compare, step, wrong)
    part = "of the whole plan, but not when it ran again: not the same from run to run"
    return Location(compare.direction, max(plan.num_steps - 1, 0), None, None, *found, part)


def _in_step(plan: rs.Plan, compare: _Forward, step: int, found: Wrong) -> Location:
    """The first step that is wrong, alone if that is enough."""
    tiles = _tiles_of(plan, [step])
    alone = compare(_part(plan, tiles))
    if alone is None:
        tiles = _tiles_of(plan, range(step + 1))
    tiles, found = _narrow(plan, compare, tiles, alone or found)
    ranks = {rank for _, rank, _ in tiles}
    rank = ranks.pop() if len(ranks) == 1 else None
    tile = plan.steps(rank)[step].tiles[tiles[0][2]] if alone and len(tiles) == 1 else None
    if tile is not None:
        part = "of this tile alone"
    elif alone:
        part = f"of {len(tiles)} tiles together, of which no half is wrong alone"
    else:
        part = "with the steps before it, right alone: look at what joins partial results"
    return Location(compare.direction, step, rank, tile, *found, part)


def _tiles_of(plan: rs.Plan, steps: Iterable[int]) -> list[Name]:
    """By rank, so that halves of them tend to be of one rank."""
    return [
        (step, rank, index)
        for rank in range(plan.cp_size)
        for step in steps
        for index in range(len(plan.steps(rank)[step].tiles))
    ]


def _part(plan: rs.Plan, tiles: Sequence[Name]) -> rs.Plan:
    """Every exchange up to the tiles' step, and these tiles only."""
    last = max((step for step, _, _ in tiles), default=-1)
    return plan._part(last + 1, set(tiles))


def _narrow(
    plan: rs.Plan, compare: _Forward, tiles: list[Name], found: Wrong
) -> tuple[list[Name], Wrong]:
    """Halves the tiles as long as a half is enough; the first half is asked first."""
    while len(tiles) > 1:
        middle = len(tiles) // 2
        for half in (tiles[:middle], tiles[middle:]):
            if wrong := compare(_part(plan, half)):
                tiles, found = half, wrong
                break
        else:
            break
    return tiles, found


def _positions(segment: rs.Segment) -> str:
    """First and last, and the stride."""
    last = segment.pos + (segment.len - 1) * segment.stride
    stride = f" by {segment.stride}" if segment.stride > 1 and segment.len > 1 else ""
    return f"{segment.pos}..{last}{stride}"
