"""How many bytes travel, of a plan and by the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

from ringside._core import InvalidArgument, PackedLayout, PlanCost, arguments
from ringside._plan.estimate import estimate


def bytes_received(cost: PlanCost) -> int:
    """Bytes that the busiest rank receives in a forward pass, results included.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> learn.bytes_received(plan.cost(head_dim=16))  # 4 rows of K and of V, 2 bytes a number
    256
    """
    return int((cost.bytes_received.sum(axis=1) + cost.result_bytes_received).max(initial=0))


def least_traffic(costs: Mapping[str, PlanCost]) -> str:
    """The name of the costs whose busiest rank receives least in a forward pass.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> layout = rs.PackedLayout.from_lengths([4, 4])
    >>> names = ("zigzag", "whole_pack")
    >>> costs = {n: rs.plan(layout, cp_size=2, partition=n).cost() for n in names}
    >>> learn.least_traffic(costs)
    'whole_pack'
    """
    if not costs:
        raise InvalidArgument("got no costs; expected one at least, under a name. Pass some")
    return min(costs, key=lambda name: bytes_received(costs[name]))


def traffic_by_ranks(
    layout: PackedLayout, cp_sizes: Sequence[SupportsIndex], transports: Sequence[str], **plan: Any
) -> dict[str, dict[int, int]]:
    """bytes_received() of each transport on each number of ranks, by rs.estimate.

    Args:
        layout: of the pack.
        cp_sizes: numbers of ranks.
        transports: names; "a2a+p2p" has groups of the largest divisor that is at most 4.
        plan: num_heads, partition and the like, as for rs.estimate.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> layout = rs.PackedLayout.from_lengths([1024])
    >>> learn.traffic_by_ranks(layout, [2, 4], ["p2p", "a2a"], num_heads=4)
    {'p2p': {2: 1048576, 4: 1572864}, 'a2a': {2: 1052672, 4: 789504}}
    """
    sizes = arguments.integers(cp_sizes, "cp_sizes").tolist()
    if not sizes or min(sizes) < 1:
        raise InvalidArgument(f"got cp_sizes {sizes}; expected numbers of ranks, 1 or more")
    return {
        comm: {size: bytes_received(_cost(layout, size, comm, plan)) for size in sizes}
        for comm in transports
    }


def _cost(layout: PackedLayout, cp_size: int, comm: Any, plan: dict[str, Any]) -> PlanCost:
    group = max(n for n in range(1, min(4, cp_size) + 1) if cp_size % n == 0)
    groups: dict[str, Any] = {"a2a_size": group} if comm == "a2a+p2p" else {}
    return estimate(layout, cp_size=cp_size, comm=comm, **groups, **plan)
