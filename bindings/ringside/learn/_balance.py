"""How evenly partitions share the work of a pack: in visible pairs, and in blocks of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from ringside import _core
from ringside._core import InvalidArgument, Mask, PackedLayout, arguments
from ringside._plan.estimate import estimate
from ringside._plan.names import Comm
from ringside._plan.partitions import Partition
from ringside.learn.figures.balance import figure_of_balance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMM: Comm = (
    "all_gather"  # keys in the order of their sequences: what a partition does, no transport
)


class Share(NamedTuple):
    """How a partition shares the work of a pack over so many ranks.

    Attributes:
        pairs: visible pairs of the busiest rank over the mean.
        blocks: blocks of 128 x 128 that the slowest rank computes, over an equal share of what one
            rank would compute alone; 1 is ideal.
        fill: visible pairs over the area of all blocks.
    """

    pairs: float
    blocks: float
    fill: float


def share_of(
    layout: PackedLayout,
    partition: Partition,
    cp_size: SupportsIndex,
    *,
    mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
) -> Share:
    """How a partition, one of your own too, shares the work of a pack.

    Args:
        layout: of the pack; one without a visible pair is shared ideally.
        partition: as ringside.plan takes it.
        cp_size: number of ranks.
        mask: over each document.

    Raises:
        ValueError: as ringside.estimate.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> layout = rs.PackedLayout.from_lengths([5000] + [700] * 40)
    >>> share = learn.share_of(layout, "zigzag", 64)
    >>> print(f"{share.pairs:.2f} {share.blocks:.2f}")
    1.06 12.38
    """
    alone = _counted(layout, "contiguous", 1, mask)
    found = _counted(layout, partition, cp_size, mask)
    ideal = alone.blocks.sum() / arguments.integer(cp_size, "cp_size")
    if not ideal:
        return Share(1.0, 1.0, 1.0)
    return Share(found.imbalance, float(found.blocks.sum(axis=1).max() / ideal), found.fill)


def _counted(layout: PackedLayout, partition: Any, cp_size: Any, mask: Mask) -> _core.PlanCost:
    return estimate(layout, cp_size=cp_size, partition=partition, comm=COMM, mask=mask)


@dataclass(frozen=True)
class Balance:
    """Partitions of one pack over several numbers of ranks; it prints as a table.

    Attributes:
        shares: of each partition by name, those for each number of ranks.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> found = learn.balance(rs.PackedLayout.from_lengths([5000]), [4])
    >>> round(found.shares["contiguous"][4].pairs, 2)
    1.75
    """

    shares: dict[str, dict[int, Share]]

    def order(self, cp_size: SupportsIndex) -> list[str]:
        """Partitions at so many ranks, the one whose slowest rank does least first.

        >>> import ringside as rs
        >>> from ringside import learn
        >>> layout = rs.PackedLayout.from_lengths([5000] + [700] * 40)
        >>> learn.balance(layout, [8, 32]).order(32)[0]
        'balanced'
        """
        number = self._known(cp_size)
        return sorted(self.shares, key=lambda name: self.shares[name][number].blocks)

    def figure(self) -> Figure:
        """Two panels over the number of ranks: pairs of the busiest, blocks of the slowest.

        >>> import ringside as rs
        >>> from ringside import learn
        >>> figure = learn.balance(rs.PackedLayout.from_lengths([700] * 9), [2, 4]).figure()
        """
        return figure_of_balance(self.shares)

    def _known(self, cp_size: SupportsIndex) -> int:
        number, known = (
            arguments.integer(cp_size, "cp_size"),
            list(next(iter(self.shares.values()))),
        )
        if number not in known:
            raise InvalidArgument(
                f"got cp_size={number}; expected one of {', '.join(map(str, known))}, which were "
                "counted. Pass such a number, or count this one"
            )
        return number

    def __str__(self) -> str:
        number = max(next(iter(self.shares.values())))
        lines = [f"at {number} ranks         pairs   blocks  fill"]
        for name in self.order(number):
            share = self.shares[name][number]
            lines.append(f"{name:<18} {share.pairs:7.2f}  {share.blocks:7.2f} {share.fill:5.2f}")
        return "\n".join(lines)

    __repr__ = __str__


def balance(
    layout: PackedLayout,
    cp_sizes: Sequence[SupportsIndex] = (2, 4, 8, 16, 32, 64),
    *,
    mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
) -> Balance:
    """How all named partitions share the work of a pack, over several numbers of ranks.

    Args:
        layout: of the pack.
        cp_sizes: numbers of ranks, at least one.
        mask: over each document.

    Raises:
        InvalidArgument: no number of ranks, or one below 1.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> layout = rs.PackedLayout.from_lengths([5000] + [700] * 40)
    >>> print("\\n".join(str(learn.balance(layout, [32])).splitlines()[:2]))
    at 32 ranks         pairs   blocks  fill
    balanced              1.13     1.04  0.81
    """
    numbers = sorted({arguments.integer(number, "cp_sizes") for number in cp_sizes})
    if not numbers or numbers[0] < 1:
        raise InvalidArgument(
            f"got cp_sizes {numbers}; expected numbers of ranks, at least one. Pass such as [8, 32]"
        )
    layout, mask = arguments.layout(layout, "layout"), arguments.mask(mask, "mask")
    return Balance(
        {
            name: {number: share_of(layout, name, number, mask=mask) for number in numbers}
            for name in _core.PARTITIONS
        }
    )
