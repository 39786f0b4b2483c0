"""How long plans would take on more and more ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex

from ringside._core import InvalidArgument, PackedLayout, arguments
from ringside._plan.estimate import estimate


class Time(NamedTuple):
    """Milliseconds of a forward pass, by a model.

    Attributes:
        total: until the last rank has ended.
        work: that the busiest rank works.
        exposed: that a rank exchanges and does not work, at most.
    """

    total: float
    work: float
    exposed: float

    def __repr__(self) -> str:
        """Its numbers, in ms."""
        return f"{self.total:,.2f} ms, work {self.work:,.2f}, exposed {self.exposed:,.2f}"


def times_by_ranks(
    layout: PackedLayout, cp_sizes: Sequence[SupportsIndex], **plan: Any
) -> dict[int, Time]:
    """Of the same pack on each number of ranks, by rs.estimate.

    Args:
        layout: of the pack.
        cp_sizes: numbers of ranks.
        plan: comm, num_heads and the like, as for rs.estimate; model, default "h200".

    >>> import ringside as rs
    >>> from ringside import learn
    >>> found = learn.times_by_ranks(rs.PackedLayout([0, 65536]), [4, 8], num_heads=16)
    >>> found[8].total < found[4].total
    True
    """
    sizes = arguments.integers(cp_sizes, "cp_sizes").tolist()
    if not sizes or min(sizes) < 1:
        raise InvalidArgument(f"got cp_sizes {sizes}; expected numbers of ranks, 1 or more")
    return {size: _time(layout, size, {"model": "h200", **plan}) for size in sizes}


def _time(layout: PackedLayout, cp_size: int, plan: dict[str, Any]) -> Time:
    forward = estimate(layout, cp_size=cp_size, **plan).forward  # type: ignore[attr-defined]
    us = (forward.total_us, forward.work_us.max(), forward.exposed_us.max())
    return Time(*(float(x) / 1e3 for x in us))


def first_exposed(times: Mapping[int, Time], share: float = 0.1) -> int | None:
    """The smallest number of ranks of which one waits for keys for more than a share of the time.

    Args:
        times: by the number of ranks, as of times_by_ranks.
        share: of the total.

    Returns:
        None where all exchanges hide.

    >>> from ringside import learn
    >>> learn.first_exposed({8: learn.Time(10.0, 10.0, 0.0), 16: learn.Time(6.0, 5.0, 1.0)})
    16
    """
    waits = [size for size, time in times.items() if time.exposed > share * time.total]
    return min(waits, default=None)
